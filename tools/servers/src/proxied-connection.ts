import type { Socket } from "node:net"
import { connect } from "node:net"
import { FaultyPipe } from "./faulty-pipe.ts"

export type Direction = "toServer" | "toClient"

/** What came in at once. How a stream is cut into chunks is up to the network: a request may come in several, or several in one. */
export interface Chunk {
  /** Connections of a proxy count from 0, in the order in which they were accepted. */
  readonly connection: number
  readonly direction: Direction
  readonly bytes: Uint8Array
  /** How many bytes came in this direction of this connection before. */
  readonly before: number
}

/**
 * What becomes of a chunk: it passes, it vanishes, the connection ends or is reset without it, other bytes take its place, it waits (and
 * what follows it too), or it passes and the connection goes behind it.
 */
export type Verdict =
  | "pass"
  | "drop"
  | "cut"
  | "reset"
  | Uint8Array
  | { readonly delayMs: number }
  | { readonly passThen: "cut" | "reset" }

/** Judges chunks one after the other. */
export type Script = (chunk: Chunk) => Verdict

/** What the network is like in one direction. */
export interface DirectionConditions {
  stalled: boolean
  delayMs: number
  bytesPerSecond: number | undefined
  /** How many of the next bytes vanish. */
  dropBytes: number
}

/** What a proxy tells its connections, and hears from them. */
export interface Conditions {
  readonly toServer: DirectionConditions
  readonly toClient: DirectionConditions
  readonly judge: (chunk: Chunk, connection: ProxiedConnection) => Verdict
  readonly passed: (direction: Direction, size: number) => void
  readonly ended: (connection: ProxiedConnection) => void
}

const longestEndMs = 100

/** One connection through a proxy: a socket on either side, and a pipe each way. */
export class ProxiedConnection {
  readonly #client: Socket
  readonly #server: Socket
  readonly #pipes: readonly FaultyPipe[]
  readonly #conditions: Conditions
  #open = true
  /** Resolves when both sockets are closed. */
  readonly closed: Promise<unknown>

  constructor(
    number: number,
    client: Socket,
    options: { readonly to: { readonly host: string; readonly port: number }; readonly conditions: Conditions },
  ) {
    const { conditions } = options
    this.#conditions = conditions
    this.#client = client
    this.#server = connect({ ...options.to, allowHalfOpen: true, noDelay: true })
    const pipe = (direction: Direction, from: Socket, to: Socket): FaultyPipe =>
      new FaultyPipe(from, to, {
        conditions: conditions[direction],
        judge: (bytes, before) => conditions.judge({ connection: number, direction, bytes, before }, this),
        passed: (size) => conditions.passed(direction, size),
        cut: (how) => this.cut(how),
      })
    this.#pipes = [pipe("toServer", client, this.#server), pipe("toClient", this.#server, client)]
    this.closed = Promise.all(
      [client, this.#server].map((socket) => new Promise((resolve) => socket.once("close", resolve))),
    )
    for (const socket of [client, this.#server]) {
      // One side broke: the other sees a reset too.
      socket.on("error", () => this.cut("reset"))
      socket.once("close", () => this.#sideClosed())
      // Neither keeps a process alive that has nothing else to do.
      socket.unref()
    }
  }

  /** Ends both sides, in order or with a reset. What is under way is lost. */
  cut(how: "end" | "reset"): void {
    if (!this.#open) return
    this.#open = false
    for (const pipe of this.#pipes) pipe.stop()
    for (const socket of [this.#client, this.#server]) {
      // A reset behind an end that is not sent yet leaks the socket, and the process never ends (Node 24.21).
      if (how === "reset" && !socket.writableEnded) socket.resetAndDestroy()
      else if (how === "reset") socket.destroy()
      else {
        socket.destroySoon()
        // A side that reads nothing would keep the end from being sent.
        setTimeout(() => socket.destroy(), longestEndMs).unref()
      }
    }
    this.#conditions.ended(this)
  }

  /** The conditions changed. */
  wake(): void {
    for (const pipe of this.#pipes) pipe.wake()
  }

  #sideClosed(): void {
    if (this.#client.destroyed && this.#server.destroyed) this.cut("end")
  }
}
