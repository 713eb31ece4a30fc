import { mkdtemp, rm } from "node:fs/promises"
import type { Socket } from "node:net"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Guard } from "./guard.ts"
import type { ServerKind } from "./need.ts"
import type { Server } from "./server.ts"
import { hostVariable, startServer } from "./shared-server.ts"

/** The longest question: the name of a kind. */
const longestQuestion = 16

/**
 * Starts servers for the files of a test run, each at the first question for it and once; ends them at the end of the run. Questions come
 * over a socket in a temporary directory, one a connection: `kafka\n`, answered by JSON.
 */
export class ServerHost implements AsyncDisposable {
  /** To be set for the test files: where their questions go. */
  readonly environment: Readonly<Record<string, string>>
  readonly #directory: string
  readonly #guard: Guard
  readonly #listener = createServer({ allowHalfOpen: true }, (socket) => this.#hear(socket))
  readonly #servers = new Map<ServerKind, Promise<Server>>()

  private constructor(directory: string) {
    this.#directory = directory
    this.#guard = new Guard(directory)
    this.environment = { [hostVariable]: join(directory, "socket") }
  }

  static async open(): Promise<ServerHost> {
    const host = new ServerHost(await mkdtemp(join(tmpdir(), "millrace-servers-")))
    await new Promise<void>((resolve, reject) => {
      host.#listener.once("error", reject)
      host.#listener.listen(join(host.#directory, "socket"), resolve)
    })
    host.#listener.unref()
    return host
  }

  /** Ends every server that was started. */
  async close(): Promise<void> {
    this.#listener.close()
    const servers = await Promise.allSettled(this.#servers.values())
    await Promise.all(servers.map((server) => (server.status === "fulfilled" ? server.value.stop() : undefined)))
    await rm(this.#directory, { recursive: true, force: true })
    this.#guard.dismiss()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #hear(socket: Socket): void {
    let question = ""
    // A file that ended without waiting for its answer.
    socket.on("error", () => socket.destroy())
    socket.on("data", (part) => {
      question += part
      if (question.length > longestQuestion) socket.destroy()
      else if (question.endsWith("\n")) void this.#answer(question.trim()).then((text) => socket.end(text))
    })
  }

  /** Never rejects: what went wrong is the answer. */
  async #answer(kind: string): Promise<string> {
    try {
      if (kind !== "kafka" && kind !== "nats" && kind !== "iggy") throw new Error(`there is no server "${kind}"`)
      let server = this.#servers.get(kind)
      if (server === undefined) {
        server = startServer(kind)
        this.#servers.set(kind, server)
      }
      const { url, ports, version } = await server
      return JSON.stringify({ server: { kind, url, ports, version } })
    } catch (error) {
      return JSON.stringify({ error: error instanceof Error ? error.message : String(error) })
    }
  }
}
