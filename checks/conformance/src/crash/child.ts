/** One child process of a crash test: started ahead of time, sent off by a word, killed when its time has come. */
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import type { Readable } from "node:stream"
import { type ChildProgram, childEnvironment, programPath } from "./child-programs.ts"
import { collectReports, reportDescriptor } from "./report.ts"

/** How long a child may take to say that it is ready, in ms. */
const readyWithinMs = 20_000

export class CrashChild {
  readonly #process: ChildProcess
  readonly #collected: Promise<void>
  readonly #exited: Promise<unknown>
  readonly #errors: string[] = []
  #reports = 0
  #listener: (() => void) | undefined
  #ready: () => void = () => {}
  readonly ready: Promise<void>

  /**
   * @param options.take Gets the words of each report but `ready`.
   * @param options.cache Where the programs are; see `prepareChildren`.
   */
  constructor(
    program: Exclude<ChildProgram, "warm-child">,
    args: readonly string[],
    options: { readonly take: (words: string[]) => void; readonly cache: string },
  ) {
    const stdio = ["ignore", "ignore", "pipe", "ipc", "pipe"] as const
    this.#process = fork(programPath(program, options.cache), args, {
      stdio: [...stdio],
      env: childEnvironment(options.cache),
    })
    this.#exited = once(this.#process, "exit")
    this.ready = new Promise((resolve) => {
      this.#ready = resolve
    })
    this.#process.stderr?.on("data", (chunk) => this.#errors.push(String(chunk)))
    this.#collected = collectReports(this.#process.stdio[reportDescriptor] as Readable, (words) => {
      this.#reports++
      if (words[0] === "ready") this.#ready()
      else options.take(words)
      this.#listener?.()
    })
  }

  /** Lets the child begin. Until then it has only loaded its code. */
  go(): void {
    this.#process.send("go")
  }

  /** Settles when the child is at work, or has died before. */
  async atWork(): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const overdue = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`a child was not ready after ${readyWithinMs} ms`)), readyWithinMs)
    })
    try {
      await Promise.race([this.ready, this.#exited, overdue])
    } finally {
      clearTimeout(timer)
    }
  }

  /** Settles after so many reports, or when the time is over: a reader may have nothing to report. */
  async reported(count: number, withinMs: number): Promise<void> {
    if (this.#reports >= count) return
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, withinMs)
      this.#listener = () => {
        if (this.#reports < count) return
        clearTimeout(timer)
        resolve()
      }
    })
    this.#listener = undefined
  }

  /** SIGKILL. Settles when the process is gone and its last report was read. */
  async kill(): Promise<void> {
    this.#process.kill("SIGKILL")
    await this.#exited
    await this.#collected
  }

  /** What it said on its way to a death that was not ours; empty when all was well. */
  get complaints(): string {
    const died = this.#process.exitCode !== null && this.#process.exitCode !== 0
    const said = this.#errors.join("").replace(/^.*(ExperimentalWarning|--trace-warnings).*$/gm, "")
    return died ? `a child ended by itself with code ${this.#process.exitCode}: ${said}` : said.trim()
  }
}
