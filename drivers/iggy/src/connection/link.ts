/** One TCP connection: bytes out, frames in. Knows nothing of sessions. */
import { connect, type Socket } from "node:net"
import { ConnectionError, MillraceError } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import { type Frame, FrameReader } from "../wire/frame-reader.ts"
import { frameKinds, kindAt } from "../wire/header.ts"
import type { Address } from "./connection.machine.ts"

/** What happens on a link. After `failed` or `drop` nothing more is told. */
export interface LinkEvents {
  dialed(): void
  frame(frame: Frame): void
  /** Once: the link is unusable and closed. */
  failed(error: MillraceError): void
}

export interface LinkOptions {
  readonly clock: Clock
  readonly dialTimeoutMs: number
  readonly mostReplyBytes: number
}

/** How many bytes of a stranger's greeting an error shows. */
const shownBytes = 60

export class Link {
  readonly address: string
  readonly #socket: Socket
  readonly #reader: FrameReader
  readonly #events: LinkEvents
  readonly #clock: Clock
  readonly #closed = Promise.withResolvers<void>()
  #dialTimer: Timer | undefined
  #over = false
  /** The first bytes from the other side, while they are no whole frame. */
  #greeting: Buffer = Buffer.alloc(0)
  #heardFrame = false
  #heardAtMs: number

  constructor(address: Address, options: LinkOptions, events: LinkEvents) {
    this.address = `${address.host}:${address.port}`
    this.#events = events
    this.#clock = options.clock
    this.#heardAtMs = options.clock.monotonicMs()
    this.#reader = new FrameReader({ mostBytes: options.mostReplyBytes, check: (header) => this.#checkHeader(header) })
    this.#socket = connect({ host: address.host, port: address.port, noDelay: true })
    this.#dialTimer = options.clock.setTimer(options.dialTimeoutMs, () =>
      this.fail(new ConnectionError(`no connection to ${this.address} within ${options.dialTimeoutMs} ms`)),
    )
    this.#socket.on("connect", () => {
      this.#dialTimer?.cancel()
      this.#heardAtMs = this.#clock.monotonicMs()
      if (!this.#over) events.dialed()
    })
    this.#socket.on("data", (chunk) => this.#take(chunk))
    this.#socket.on("error", (cause) => this.fail(connectionLost(this.address, cause)))
    this.#socket.on("end", () => this.fail(this.#ended()))
    this.#socket.on("close", () => {
      this.fail(this.#ended())
      this.#closed.resolve()
    })
  }

  /** Settles when the socket is gone. */
  get closed(): Promise<void> {
    return this.#closed.promise
  }

  /** Monotonic time of the last byte from the other side, or of the connect. */
  get heardAtMs(): number {
    return this.#heardAtMs
  }

  /** Hands bytes to the socket. `done` is called once, when the socket no longer needs them. */
  write(bytes: Buffer, done?: () => void): void {
    if (done === undefined) this.#socket.write(bytes)
    else this.#socket.write(bytes, () => done())
  }

  /** Closes without a word. */
  drop(): void {
    this.#over = true
    this.#dialTimer?.cancel()
    this.#socket.destroy()
  }

  /** Closes and tells why, unless it was over before. */
  fail(error: MillraceError): void {
    if (this.#over) return
    this.drop()
    this.#events.failed(error)
  }

  /** Closes because of bytes that are not the protocol's: the error names the address and, before the first frame, what it probably is. */
  garbled(error: unknown): void {
    this.fail(misunderstood(this.address, error, this.finding))
  }

  /** What is known of a server that does not speak the protocol: for errors of a login that got no answer. */
  get finding(): string {
    if (this.#heardFrame) return ""
    if (this.#greeting.length === 0)
      return "it said nothing. Is it an Apache Iggy server's TCP port (8090 by default), without TLS?"
    return `it said ${describeBytes(this.#greeting)}, which is not the protocol of Apache Iggy. Is it its TCP port (8090 by default)?`
  }

  #take(chunk: Buffer): void {
    if (this.#over) return
    this.#heardAtMs = this.#clock.monotonicMs()
    try {
      if (!this.#heardFrame && this.#greeting.length < shownBytes) {
        this.#greeting = Buffer.concat([this.#greeting, chunk.subarray(0, shownBytes - this.#greeting.length)])
        if (isForeign(this.#greeting)) throw new MillraceError("protocol", "its first bytes are somebody else's")
      }
      for (const frame of this.#reader.push(chunk)) {
        this.#heardFrame = true
        this.#events.frame(frame)
        if (this.#over) return
      }
    } catch (error) {
      this.garbled(error)
    }
  }

  #checkHeader(header: Buffer): void {
    const kind = header[kindAt]
    if (kind === frameKinds.reply || kind === frameKinds.eviction) return
    throw new MillraceError("protocol", `a frame of kind ${kind} is neither a reply (8) nor an eviction (13)`)
  }

  #ended(): MillraceError {
    const finding = this.finding
    return new ConnectionError(`${this.address} closed the connection${finding === "" ? "" : `; ${finding}`}`)
  }
}

/** Replies begin with checksums or zeros; sixteen letters in a row, or a TLS alert, are somebody else's greeting. */
function isForeign(bytes: Buffer): boolean {
  if (bytes.length >= 3 && bytes[0] === 0x15 && bytes[1] === 0x03) return true
  return (
    bytes.length >= 16 &&
    bytes.subarray(0, 16).every((byte) => (byte >= 32 && byte < 127) || byte === 10 || byte === 13)
  )
}

function misunderstood(address: string, cause: unknown, finding: string): MillraceError {
  const why = cause instanceof Error ? cause.message : String(cause)
  return new MillraceError(
    "protocol",
    `${address} sent what cannot be understood: ${why}${finding && `; ${finding}`}`,
    {
      outcome: "rejected",
      cause,
    },
  )
}

function describeBytes(bytes: Buffer): string {
  if (bytes[0] === 0x15 && bytes[1] === 0x03) return "a TLS alert"
  const text = bytes.toString("latin1")
  return /^[\x20-\x7e\r\n\t]*$/.test(text) ? JSON.stringify(text) : `the bytes ${bytes.subarray(0, 16).toString("hex")}`
}

function connectionLost(address: string, cause: Error): ConnectionError {
  const code = (cause as NodeJS.ErrnoException).code
  const why = code === "ECONNREFUSED" ? "nobody listens there" : cause.message || String(code)
  return new ConnectionError(`no connection to ${address}: ${why}`, { cause })
}
