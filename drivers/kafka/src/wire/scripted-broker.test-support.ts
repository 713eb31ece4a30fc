/** A broker that answers as a test says: with messages, with any bytes, late, never, or by hanging up. */
import { createServer, type Server, type Socket } from "node:net"
import { codecOf } from "../protocol/api.ts"
import type { Struct } from "../protocol/codec.ts"
import { answerFrame, everyApi } from "../protocol/every-api.test-support.ts"
import { Reader } from "../protocol/reader.ts"
import { FrameReader } from "./frame-reader.ts"

/** A request as the broker got it. */
export interface Received {
  readonly api: string
  readonly version: number
  readonly correlationId: number
  readonly clientId: string
  readonly body: Struct
  /** Counts the broker's connections from 0. */
  readonly connection: number
}

/** What the broker does: a message of the request's version, a message in another version, bytes as they are, nothing, or the end. */
export type Reply =
  | { readonly message: Struct; readonly version?: number; readonly correlationId?: number }
  | { readonly bytes: Uint8Array }
  | "silence"
  | "cut"

export type BrokerScript = (request: Received) => Reply | undefined | Promise<Reply | undefined>

/** Highest versions by the names of APIs, where they differ from what this driver speaks; null: not offered. */
export type Offer = Readonly<Record<string, readonly [least: number, most: number] | null>>

const apis = new Map(everyApi().map((api) => [api.key, api]))

export class ScriptedBroker {
  readonly port: number
  readonly requests: Received[] = []
  /** Changed by tests while the broker runs. `undefined` from it means: as `ordinary` says. */
  script: BrokerScript
  offer: Offer = {}
  features: readonly { readonly name: string; readonly level: number }[] = []
  /** How many connections were taken. */
  connections = 0
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(server: Server, port: number, script: BrokerScript) {
    this.#server = server
    this.port = port
    this.script = script
  }

  static async open(script: BrokerScript = () => undefined, port = 0): Promise<ScriptedBroker> {
    const server = createServer()
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject)
      server.listen(port, "127.0.0.1", resolve)
    })
    const address = server.address()
    if (address === null || typeof address === "string") throw new Error("the broker has no port")
    const broker = new ScriptedBroker(server, address.port, script)
    server.on("connection", (socket) => broker.#serve(socket))
    return broker
  }

  /** Ends every connection that there is now. */
  cutAll(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    this.cutAll()
    await closed
  }

  #serve(socket: Socket): void {
    const connection = this.connections++
    this.#sockets.add(socket)
    socket.on("close", () => this.#sockets.delete(socket))
    socket.on("error", () => {})
    const frames = new FrameReader()
    // One after the other, as brokers do.
    let turn = Promise.resolve()
    socket.on("data", (chunk) =>
      frames.push(chunk, (frame) => {
        turn = turn.then(() => this.#handle(socket, received(frame, connection)))
      }),
    )
  }

  async #handle(socket: Socket, request: Received): Promise<void> {
    this.requests.push(request)
    const reply = (await this.script(request)) ?? this.#ordinary(request)
    if (reply === "silence") return
    if (reply === "cut") {
      socket.destroy()
      return
    }
    if ("bytes" in reply) {
      socket.write(reply.bytes)
      return
    }
    socket.write(framed(request, reply))
  }

  #ordinary(request: Received): Reply {
    if (request.api === "ApiVersions") return { message: this.versions() }
    if (request.api === "Metadata") return { message: metadata([{ nodeId: 0, port: this.port }]) }
    throw new Error(`the script says nothing of ${request.api}`)
  }

  /** The answer to ApiVersions. */
  versions(): Struct {
    const apiKeys = everyApi().flatMap(({ name, key, min, max }) => {
      const offered = this.offer[name]
      if (offered === null) return []
      const [minVersion, maxVersion] = offered ?? [min, max]
      return [{ apiKey: key, minVersion, maxVersion }]
    })
    const finalizedFeatures = this.features.map(({ name, level }) => ({
      name,
      maxVersionLevel: level,
      minVersionLevel: level,
    }))
    return { errorCode: 0, apiKeys, throttleTimeMs: 0, supportedFeatures: [], finalizedFeatures }
  }
}

/** An answer to Metadata. */
export function metadata(
  brokers: readonly { readonly nodeId: number; readonly port: number }[],
  topics: readonly Struct[] = [],
): Struct {
  return {
    brokers: brokers.map(({ nodeId, port }) => ({ nodeId, host: "127.0.0.1", port, rack: null })),
    clusterId: "scripted",
    controllerId: brokers[0]?.nodeId ?? -1,
    topics,
  }
}

/** A topic in an answer to Metadata. */
export function topicEntry(
  name: string,
  topicId: string,
  leaders: readonly { readonly leader: number; readonly epoch: number }[],
): Struct {
  const partitions = leaders.map(({ leader, epoch }, partitionIndex) => ({
    errorCode: 0,
    partitionIndex,
    leaderId: leader,
    leaderEpoch: epoch,
    replicaNodes: [leader],
    isrNodes: [leader],
    offlineReplicas: [],
  }))
  return { errorCode: 0, name, topicId, isInternal: false, partitions }
}

/** The bytes of an answer with their length. */
export function framed(
  request: Pick<Received, "api" | "version" | "correlationId">,
  reply: { readonly message: Struct; readonly version?: number; readonly correlationId?: number },
): Buffer {
  const api = everyApi().find(({ name }) => name === request.api)
  if (api === undefined) throw new Error(`no API is called ${request.api}`)
  const correlationId = reply.correlationId ?? request.correlationId
  const frame = answerFrame(api, reply.version ?? request.version, { message: reply.message, correlationId })
  const length = Buffer.alloc(4)
  length.writeInt32BE(frame.length)
  return Buffer.concat([length, frame])
}

function received(frame: Uint8Array, connection: number): Received {
  const reader = new Reader(frame)
  const key = reader.int16()
  const version = reader.int16()
  const correlationId = reader.int32()
  const clientId = reader.text(reader.int16())
  const api = apis.get(key)
  if (api === undefined) throw new Error(`no API has the key ${key}`)
  // This driver sends no tagged fields in headers: their count is one byte, 0.
  if (version >= (api.request.flexible ?? Number.POSITIVE_INFINITY)) reader.skip(1)
  return {
    api: api.name,
    version,
    correlationId,
    clientId,
    body: codecOf(api.request, version).read(reader),
    connection,
  }
}
