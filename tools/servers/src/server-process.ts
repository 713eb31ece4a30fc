import type { ChildProcess } from "node:child_process"
import { spawn } from "node:child_process"
import { closeSync, openSync, readFileSync } from "node:fs"
import process from "node:process"
import type { Guard } from "./guard.ts"

/** One process of a server: what is started, and where its words go. */
export interface ProcessPlan {
  /** For messages: `kafka broker 2`. */
  readonly name: string
  readonly command: string
  readonly args: readonly string[]
  /** Set on top of this process's own variables. */
  readonly env?: Readonly<Record<string, string>>
  /** The file that its output is added to. */
  readonly logFile: string
}

/** One process of a server, that can be ended and started again. It does not keep this process alive, nor outlive it. */
export class ServerProcess {
  readonly plan: ProcessPlan
  readonly #guard: Guard
  #child: ChildProcess | undefined
  #gone: Promise<void> = Promise.resolve()

  constructor(plan: ProcessPlan, guard: Guard) {
    this.plan = plan
    this.#guard = guard
  }

  /** Whether it runs (or is halted). */
  get alive(): boolean {
    return this.#child !== undefined
  }

  get pid(): number | undefined {
    return this.#child?.pid
  }

  /** @throws Error when it runs already, or cannot be started */
  async start(): Promise<void> {
    if (this.#child !== undefined) throw new Error(`${this.plan.name} runs already`)
    const log = openSync(this.plan.logFile, "a")
    const child = spawn(this.plan.command, this.plan.args, {
      env: { ...process.env, ...this.plan.env },
      // A group of its own: a Ctrl-C in the terminal is for its owner, which ends it in order.
      detached: true,
      stdio: ["ignore", log, log],
    })
    closeSync(log)
    const { pid } = child
    if (pid !== undefined) this.#guard.watch(pid)
    child.unref()
    this.#child = child
    this.#gone = new Promise((resolve) => {
      const end = (): void => {
        if (pid !== undefined) this.#guard.forget(pid)
        this.#child = undefined
        resolve()
      }
      child.once("exit", end)
      child.once("error", end)
    })
    if (pid === undefined) {
      await this.#gone
      throw new Error(`${this.plan.name}: ${this.plan.command} cannot be started`)
    }
  }

  /** Sends a signal and waits until the process is gone; at once when it is. A halted process is ended by SIGKILL alone. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child
    if (child === undefined) return
    child.ref()
    child.kill(signal)
    await this.#gone
  }

  /** Halts it: connections stay open, and nothing is answered. */
  pause(): void {
    this.#child?.kill("SIGSTOP")
  }

  /** Lets it go on. */
  resume(): void {
    this.#child?.kill("SIGCONT")
  }

  /** The end of what it said. */
  logs(): string {
    return readFileSync(this.plan.logFile, { encoding: "utf8", flag: "a+" }).slice(-longestLog)
  }
}

const longestLog = 200_000
