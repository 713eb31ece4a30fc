/** A process that sends in the background and ends on SIGTERM, seen from its parent: see `drain.child.ts`. */
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import { extname } from "node:path"
import { fileURLToPath } from "node:url"
import { settlesWithin, until } from "./deadline.ts"

/** What the child is or has done, with what it says of it. */
export interface Told {
  readonly state: string
  readonly [detail: string]: unknown
}

/** The child, and what it told. It is killed when it does not end in time. */
export class DrainChild {
  readonly #process: ChildProcess
  readonly #exit: Promise<unknown[]>
  readonly #told: Told[] = []
  readonly #complaints: string[] = []

  /** @param args URL, stream, topic, records, milliseconds that the close may take. */
  constructor(args: readonly string[]) {
    const here = fileURLToPath(import.meta.url)
    const script = fileURLToPath(new URL(`./drain.child${extname(here)}`, import.meta.url))
    this.#process = fork(script, args, { stdio: ["ignore", "ignore", "pipe", "ipc"] })
    this.#exit = once(this.#process, "exit")
    this.#process.on("message", (message) => this.#told.push(message as Told))
    this.#process.stderr?.on("data", (chunk) => this.#complaints.push(String(chunk)))
  }

  go(): void {
    this.#process.send("go")
  }

  terminate(): void {
    this.#process.kill("SIGTERM")
  }

  async told(state: string): Promise<Told> {
    return until(
      `the child to be ${state}`,
      () => {
        const found = this.#told.find((one) => one.state === state)
        if (found !== undefined) return found
        const gone = this.#process.exitCode !== null || this.#process.signalCode !== null
        const last = this.#told.at(-1)
        if (gone || (last !== undefined && ["closed", "failed"].includes(last.state))) {
          throw new Error(`the child ended otherwise: ${JSON.stringify(last)} ${this.#complaints.join("")}`)
        }
        return undefined
      },
      20_000,
    )
  }

  /** Its exit code. */
  async exited(): Promise<unknown> {
    try {
      const [code] = await settlesWithin("the child's end", this.#exit, 10_000)
      return code
    } finally {
      this.#process.kill("SIGKILL")
    }
  }
}
