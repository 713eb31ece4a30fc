/** A server that speaks the frames of the protocol and otherwise does what a test says. */
import { once } from "node:events"
import { createServer, type Socket } from "node:net"
import { loginRegister } from "../codec/server-commands.ts"
import { ByteWriter } from "../wire/byte-writer.ts"
import { FrameReader } from "../wire/frame-reader.ts"
import { headerBytes, type RequestHeader } from "../wire/header.ts"
import { register } from "../wire/operation.ts"
import { hasResults, readRequestHeader, writeEvictionFrame, writeReplyFrame } from "../wire/server-side.test-support.ts"
import { packedVersion, type WireVersion } from "../wire/version.ts"

/** One connection as the script sees it. */
export interface Visitor {
  readonly socket: Socket
  /** Counts from 1. */
  readonly number: number
  send(bytes: Buffer): void
}

export interface Received extends RequestHeader {
  readonly body: Buffer
  /** The whole frame. */
  readonly frame: Buffer
}

/** Answers what it likes, also nothing. */
export type Script = (request: Received, visitor: Visitor) => void

export class ScriptedServer {
  readonly port: number
  /** All requests in the order of their coming. */
  readonly received: Received[] = []
  /** Connections accepted so far. */
  accepted = 0
  script: Script
  readonly #server: ReturnType<typeof createServer>
  readonly #sockets = new Set<Socket>()

  private constructor(server: ReturnType<typeof createServer>, script: Script) {
    this.#server = server
    this.script = script
    this.port = (server.address() as { port: number }).port
  }

  static async start(script: Script = obliging()): Promise<ScriptedServer> {
    const server = createServer()
    server.listen(0, "127.0.0.1")
    await once(server, "listening")
    const scripted = new ScriptedServer(server, script)
    server.on("connection", (socket) => scripted.#accept(socket))
    return scripted
  }

  /** Cuts all connections; new ones are accepted. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async stop(): Promise<void> {
    const closed = once(this.#server, "close")
    this.#server.close()
    this.cut()
    await closed
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }

  #accept(socket: Socket): void {
    this.accepted++
    this.#sockets.add(socket)
    const visitor: Visitor = { socket, number: this.accepted, send: (bytes) => void socket.write(bytes) }
    const reader = new FrameReader({ mostBytes: 64 << 20, check: () => undefined })
    socket.on("error", () => undefined)
    socket.on("close", () => this.#sockets.delete(socket))
    socket.on("data", (chunk) => {
      for (const { bytes } of reader.push(chunk)) {
        const request = { ...readRequestHeader(bytes), body: bytes.subarray(headerBytes), frame: bytes }
        this.received.push(request)
        this.script(request, visitor)
      }
    })
  }
}

/** Takes any login and gives the empty answer to everything else; `first` may answer before (true: it did, or wants silence). */
export function obliging(
  first: (request: Received, visitor: Visitor) => boolean = () => false,
  version: WireVersion = "0.11",
): Script {
  return (request, visitor) => {
    if (first(request, visitor)) return
    if (request.operation === register) visitor.send(granted(request, version))
    else if (request.code === clusterMetadata) visitor.send(reply(request, oneNode))
    else visitor.send(reply(request, Buffer.alloc(0)))
  }
}

export const clusterMetadata = 12
const oneNode = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0])

/** A login that is granted. Sessions count from 1. */
export function granted(request: Received, version: WireVersion = "0.11"): Buffer {
  const writer = new ByteWriter()
  const value = { userId: 0, session: 1n, protocolVersion: packedVersion(version), serverVersion: "0.9.0" }
  loginRegister.reply.write(writer, value, version)
  return reply(request, writer.bytes())
}

/** An answer with a payload. */
export function reply(request: Received, payload: Uint8Array, operation: number = request.operation): Buffer {
  const body = hasResults(operation) ? Buffer.concat([Buffer.alloc(4), payload]) : payload
  return writeReplyFrame({ request: request.request, operation }, body)
}

/** A refusal in the header, or among the results. */
export function refusal(request: Received, code: number, where: "status" | "result" = "status"): Buffer {
  const { operation } = request
  if (where === "status") {
    return writeReplyFrame({ request: request.request, operation, status: code }, Buffer.alloc(0))
  }
  const results = Buffer.alloc(12)
  results.writeUInt32LE(1, 0)
  results.writeUInt32LE(code, 8)
  return writeReplyFrame({ request: request.request, operation }, results)
}

/** The end of the session. `window`: the protocol versions that a server takes, packed. */
export function eviction(
  reason: number,
  window: { oldest: number; newest: number } = { oldest: 0, newest: 0 },
): Buffer {
  return writeEvictionFrame(reason, window)
}
