import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as wait } from "node:timers/promises"
import type { FaultProxy } from "./fault-proxy.ts"
import { Guard } from "./guard.ts"
import type { ServerKind } from "./need.ts"
import type { ProcessPlan } from "./server-process.ts"
import { ServerProcess } from "./server-process.ts"

/** What a kind of server is made of, for one directory and one choice of ports. */
export interface ServerPlan {
  readonly kind: ServerKind
  /** The program's own version, for reports. */
  readonly version: string
  readonly processes: readonly ProcessPlan[]
  /** Where clients reach each process without a proxy. */
  readonly directPorts: readonly number[]
  /** Proxies in front of them, when they were asked for. */
  readonly proxies: readonly FaultProxy[]
  /** The connection string for these ports. */
  readonly url: (ports: readonly number[]) => string
  /** Done before the first start, such as formatting a directory. */
  readonly prepare?: () => Promise<void>
  /** Asks once whether these processes serve clients, given which run. @throws Error that says why not */
  readonly probe: (asked: readonly number[], running: readonly number[]) => Promise<void>
  /** How long a start may take. */
  readonly readyMs: number
}

const probeEveryMs = 50
/** Another process may take a port between its choice and the start. */
const mostStarts = 3

/** A server on this machine, with its data in a temporary directory; of several processes where it is a cluster. */
export class Server implements AsyncDisposable {
  readonly kind: ServerKind
  readonly version: string
  /** Data, configuration and output of its processes. */
  readonly directory: string
  /** Where clients are to connect, one port of 127.0.0.1 for each process: the proxy's where there is one. They stay the same over restarts. */
  readonly ports: readonly number[]
  /** The proxies between clients and processes, in the order of the processes; none unless asked for. */
  readonly proxies: readonly FaultProxy[]
  /** Connection string to all of it. */
  readonly url: string
  /** Connection string to each process alone. */
  readonly urls: readonly string[]
  /** Connection string past the proxies; the same as `url` where there are none. */
  readonly directUrl: string
  readonly #plan: ServerPlan
  readonly #processes: readonly ServerProcess[]
  readonly #guard: Guard
  #stopped = false

  private constructor(plan: ServerPlan, directory: string, guard: Guard) {
    this.#plan = plan
    this.#guard = guard
    this.kind = plan.kind
    this.version = plan.version
    this.directory = directory
    this.proxies = plan.proxies
    this.ports = plan.proxies.length === 0 ? plan.directPorts : plan.proxies.map(({ port }) => port)
    this.url = plan.url(this.ports)
    this.urls = this.ports.map((port) => plan.url([port]))
    this.directUrl = plan.url(plan.directPorts)
    this.#processes = plan.processes.map((process) => new ServerProcess(process, guard))
  }

  /**
   * Starts a server and resolves when it serves clients. @param plan Asked again with an empty directory when a port was taken.
   * @throws Error with the end of the server's output, when it does not come up
   */
  static async launch(kind: ServerKind, plan: (directory: string) => Promise<ServerPlan>): Promise<Server> {
    for (let starts = 1; ; starts++) {
      const directory = await mkdtemp(join(tmpdir(), `millrace-${kind}-`))
      const guard = new Guard(directory)
      let server: Server | undefined
      try {
        server = new Server(await plan(directory), directory, guard)
        await server.#plan.prepare?.()
        await server.start()
        return server
      } catch (error) {
        if (server === undefined) {
          await rm(directory, { recursive: true, force: true })
          guard.dismiss()
        } else await server.stop()
        const portTaken = /address (is )?already in use|bind: address|AddrInUse/i.test(String(error))
        if (!portTaken || starts === mostStarts) throw error
      }
    }
  }

  /** The end of what its processes said, or one of them. */
  logs(node?: number): string {
    return this.#some(node)
      .map((index) => this.#process(index))
      .map((process) => (this.#processes.length === 1 ? process.logs() : `--- ${process.plan.name}\n${process.logs()}`))
      .join("\n")
  }

  /** Numbers of the processes that run; those that are halted too. */
  get running(): readonly number[] {
    return this.#processes.flatMap((process, index) => (process.alive ? [index] : []))
  }

  /** Process number of the operating system, for measurements; `undefined` while it does not run. */
  pid(node = 0): number | undefined {
    return this.#process(node).pid
  }

  /** Ends all processes or one, and resolves when they are gone. The data stays, and proxies go on listening. */
  async kill(signal: NodeJS.Signals = "SIGKILL", node?: number): Promise<void> {
    await Promise.all(this.#some(node).map((index) => this.#process(index).kill(signal)))
  }

  /** Halts all processes or one (SIGSTOP): connections stay open, and nothing is answered. */
  pause(node?: number): void {
    for (const index of this.#some(node)) this.#process(index).pause()
  }

  /** Lets halted processes go on (SIGCONT). */
  resume(node?: number): void {
    for (const index of this.#some(node)) this.#process(index).resume()
  }

  /**
   * Starts what does not run, or one process, on the same data and the same ports. Resolves when it serves clients.
   * @throws Error with the end of the server's output, when it does not come up
   */
  async start(node?: number): Promise<void> {
    if (this.#stopped) throw new Error(`this ${this.kind} server was stopped, and its data is removed`)
    const started = this.#some(node).filter((index) => !this.#process(index).alive)
    await Promise.all(started.map((index) => this.#process(index).start()))
    await this.#ready(started)
  }

  /** Ends it (without ceremony: its data goes too), closes its proxies and removes its directory. */
  async stop(): Promise<void> {
    if (this.#stopped) return
    this.#stopped = true
    await this.kill("SIGKILL")
    await Promise.all(this.proxies.map((proxy) => proxy.close()))
    await rm(this.directory, { recursive: true, force: true })
    this.#guard.dismiss()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  async #ready(started: readonly number[]): Promise<void> {
    const until = performance.now() + this.#plan.readyMs
    for (;;) {
      const dead = started.find((index) => !this.#process(index).alive)
      if (dead !== undefined) {
        throw new Error(`${this.#process(dead).plan.name} ended while it started:\n${this.logs(dead).slice(-4_000)}`)
      }
      try {
        await this.#plan.probe(started, this.running)
        return
      } catch (error) {
        if (performance.now() > until) {
          const why = error instanceof Error ? error.message : String(error)
          throw new Error(
            `the ${this.kind} server is not ready after ${this.#plan.readyMs / 1_000} s: ${why}\n${this.logs().slice(-4_000)}`,
            { cause: error },
          )
        }
      }
      await wait(probeEveryMs)
    }
  }

  #some(node: number | undefined): readonly number[] {
    return node === undefined ? this.#processes.map((_, index) => index) : [node]
  }

  #process(index: number): ServerProcess {
    const process = this.#processes[index]
    if (process === undefined) {
      throw new Error(`there is no process ${index}: this ${this.kind} server has 0 to ${this.#processes.length - 1}`)
    }
    return process
  }
}
