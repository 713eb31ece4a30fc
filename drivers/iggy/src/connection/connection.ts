/**
 * A session on an Apache Iggy server: it logs in, keeps the session alive, comes back after losses, and matches replies to requests.
 * While there is no session, requests fail at once, retryably, and nothing is kept: waiting is the caller's policy.
 */
import { InvalidError, MillraceError, RecordTooLargeError, type TopicName, UnsupportedError } from "@millrace/contract"
import type { PartitionContext } from "../codec/catalog-structures.ts"
import type { Command } from "../codec/command.ts"
import { getPartitionRoute, sendMessages } from "../codec/message-commands.ts"
import type { Confirmation, PartitionRef } from "../codec/message-structures.ts"
import { getClusterMetadata, ping } from "../codec/server-commands.ts"
import { errorCodeOf, errorCodes, serverError } from "../codec/server-error.ts"
import { ByteReader } from "../wire/byte-reader.ts"
import { ByteWriter } from "../wire/byte-writer.ts"
import type { Frame } from "../wire/frame-reader.ts"
import { headerBytes, readReplyHeader, writeRequestHeader } from "../wire/header.ts"
import { nonReplicated, operationClass } from "../wire/operation.ts"
import { type Reply, readReply } from "../wire/reply.ts"
import type { WireVersion } from "../wire/version.ts"
import { type ConnectionOptions, Lifeline, mostReplyBytes, type OpenLimits } from "./lifeline.ts"
import { randomU128 } from "./login.ts"
import { PartitionRoutes } from "./partition-routes.ts"
import { type Outgoing, type Pinned, RequestTable } from "./request-table.ts"

export type { ConnectionOptions, OpenLimits } from "./lifeline.ts"

export interface RequestOptions {
  /** From the call on, waiting for a place in flight included. */
  readonly timeoutMs: number
  /** Wire 0.12: the life of the partition that the request speaks to. Absent: the connection asks for it. */
  readonly context?: PartitionContext
}

/** A batch whose frame leaves room for the header and whose buffer is kept until the socket is done with it. */
export interface Sendable extends Pinned {
  readonly frame: Buffer
  readonly target: { readonly topic: TopicName; readonly partition: number }
}

/** Where a batch went, and when: `committedMicros` is the append time that polls will tell of its messages. */
export interface Sent extends Confirmation {
  readonly committedMicros: bigint
}

interface Answer<S> {
  readonly value: S
  readonly committedMicros: bigint
}

/** Between two tries of a command whose commit the server could not yet tell. */
const recommitMs = 50

export class IggyConnection {
  readonly #options: ConnectionOptions
  readonly #requests: RequestTable
  readonly #lifeline: Lifeline
  readonly #routes: PartitionRoutes
  /** Frames that the socket still reads from. */
  readonly #writing = new WeakSet<Buffer>()
  /** Requests count on over all sessions, so that a late reply never meets another request. */
  #lastRequest = 0

  private constructor(options: ConnectionOptions) {
    this.#options = options
    this.#requests = new RequestTable(options.clock, (request) => this.#write(request))
    this.#routes = new PartitionRoutes((place, timeoutMs) => this.#ask(getPartitionRoute, place, { timeoutMs }))
    this.#lifeline = new Lifeline(options, {
      take: (frame) => this.#take(frame),
      failAll: (error) => {
        this.#routes.clear()
        this.#requests.failAll(error)
      },
      askCluster: () => this.#ask(getClusterMetadata, undefined, { timeoutMs: options.dialTimeoutMs }),
      ping: (timeoutMs) => {
        this.#ask(ping, undefined, { timeoutMs }).catch(() => undefined)
      },
    })
  }

  /**
   * Connects and logs in: one round over the addresses. Afterwards the connection comes back by itself until it is closed.
   * @throws AuthenticationError, UnsupportedError (other versions of the protocol), ConnectionError, MillraceError `protocol` (it is no
   *   Apache Iggy), CancelledError
   */
  static async open(options: ConnectionOptions, limits: OpenLimits): Promise<IggyConnection> {
    if (options.addresses.length === 0) throw new InvalidError("no address of an Apache Iggy server is given")
    const connection = new IggyConnection(options)
    await connection.#lifeline.open(limits)
    return connection
  }

  /** Whether there is a session, so that requests are sent. */
  get ready(): boolean {
    return this.#lifeline.ready
  }

  /** Counts sessions from 1. */
  get session(): number {
    return this.#lifeline.sessions
  }

  /** As the server names itself at login: `0.9.0`. */
  get serverVersion(): string {
    return this.#lifeline.granted.serverVersion
  }

  /** The wire that is spoken. */
  get version(): WireVersion {
    return this.#lifeline.granted.version
  }

  /** `host:port` of the server that is or was last called. */
  get server(): string {
    return this.#lifeline.server
  }

  /**
   * Asks one thing. @throws the server's refusal (see `serverError`; `context.code` is its number), ConnectionError (outcome `unknown`
   * when it was written and may have changed something), TimeoutError (likewise), InvalidError for what cannot be encoded,
   * UnsupportedError for a command of another wire, ClosedError
   */
  request<Q, S>(command: Command<Q, S>, query: Q, options: RequestOptions): Promise<S> {
    const obstacle = this.#obstacle(command)
    if (obstacle !== undefined) return Promise.reject(obstacle)
    const place = this.#placeOf(command, query, options)
    return place === undefined
      ? this.#ask(command, query, options)
      : this.#routed(place, options, (routed) => this.#ask(command, query, routed))
  }

  /**
   * Sends a batch as it lies in its buffer; only the header is written into it. A batch that is sent again is appended again.
   * @throws as `request`
   */
  send(batch: Sendable, options: RequestOptions): Promise<readonly Sent[]> {
    const obstacle = this.#obstacle(sendMessages)
    if (obstacle !== undefined) return Promise.reject(obstacle)
    if (this.version === "0.11" || options.context !== undefined) return this.#send(batch, options)
    const { topic, partition } = batch.target
    return this.#routed({ ...topic, partition }, options, (routed) => this.#send(batch, routed))
  }

  async #send(batch: Sendable, options: RequestOptions): Promise<readonly Sent[]> {
    const { frame } = batch
    // The socket may still read what an earlier try has written.
    const { value, committedMicros } = this.#writing.has(frame)
      ? await this.#exchange(sendMessages, Buffer.from(frame), options)
      : await this.#exchange(sendMessages, frame, { ...options, owner: batch })
    return value.map((confirmation) => ({ ...confirmation, committedMicros }))
  }

  #placeOf<Q>(command: Command<Q, unknown>, query: Q, options: RequestOptions): PartitionRef | undefined {
    return this.version === "0.11" || options.context !== undefined ? undefined : command.place?.(query)
  }

  /** Wire 0.12: with the partition's route, which the server may refuse as outdated. */
  async #routed<S>(
    place: PartitionRef,
    options: RequestOptions,
    ask: (options: RequestOptions) => Promise<S>,
  ): Promise<S> {
    const context = await this.#routes.find(place, options.timeoutMs)
    const obstacle = this.#lifeline.obstacle("the request")
    if (obstacle !== undefined) throw obstacle
    try {
      return await ask({ ...options, context })
    } catch (error) {
      if (errorCodeOf(error) === errorCodes.historyUnavailable) this.#routes.forget(place)
      throw error
    }
  }

  /** Ends the session. What is under way is rejected with ClosedError. The second call awaits the first. */
  close(): Promise<void> {
    return this.#lifeline.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  #obstacle(command: Command<unknown, unknown>): MillraceError | undefined {
    const { version, serverVersion } = this
    if (command.only !== undefined && command.only !== version && this.ready) {
      return new UnsupportedError(
        `${command.name} belongs to protocol ${command.only} of Apache Iggy; the server ${serverVersion} speaks ${version}`,
      )
    }
    return this.#lifeline.obstacle(command.name)
  }

  #ask<Q, S>(command: Command<Q, S>, query: Q, options: RequestOptions): Promise<S> {
    let frame: Buffer
    try {
      frame = requestFrame(command, query, this.version)
    } catch (error) {
      return Promise.reject(error)
    }
    return this.#exchange(command, frame, options).then(({ value }) => value)
  }

  #exchange<S>(
    command: Command<unknown, S>,
    frame: Buffer,
    options: RequestOptions & { owner?: Pinned },
  ): Promise<Answer<S>> {
    const { name, operation } = command
    return new Promise<Answer<S>>((resolve, reject) => {
      this.#requests.add({
        id: ++this.#lastRequest,
        name,
        operation,
        code: operation === nonReplicated ? command.code : 0,
        context: options.context,
        frame,
        owner: options.owner,
        timeoutMs: options.timeoutMs,
        resolve: (reply) => {
          if (reply.code !== 0) reject(this.#refusal(reply.code, name))
          else this.#decode(command, reply, { resolve, reject })
        },
        reject,
      })
    })
  }

  #decode<S>(
    command: Command<unknown, S>,
    reply: Reply,
    call: { resolve(answer: Answer<S>): void; reject(error: unknown): void },
  ): void {
    try {
      const reader = new ByteReader(reply.payload, `the reply of Apache Iggy to ${command.name}`)
      const value = command.reply.read(reader, this.version)
      reader.end()
      call.resolve({ value, committedMicros: reply.header.timestampMicros })
    } catch (error) {
      call.reject(error)
      this.#lifeline.broken(error)
    }
  }

  #refusal(code: number, command: string): MillraceError {
    const error = serverError(code, command)
    if (code === errorCodes.unauthenticated || code === errorCodes.staleClient) this.#lifeline.evicted(error)
    if (code === errorCodes.transientNotAccepted) this.#lifeline.checkLeader()
    return error
  }

  #take({ bytes, sizeBytes }: Frame): void {
    if (sizeBytes > bytes.length) {
      const error = new RecordTooLargeError(
        `the reply of Apache Iggy has ${sizeBytes} bytes, above the limit of ${mostReplyBytes}: ask for fewer messages`,
        { context: { sizeBytes, limitBytes: mostReplyBytes } },
      )
      this.#requests.refuse(readReplyHeader(bytes).request, error)
      return
    }
    const reply = readReply(bytes)
    const id = reply.header.request
    if (reply.code === errorCodes.transientNotCommitted && this.#requests.repeat(id, recommitMs)) return
    if (!this.#requests.settle(id, reply) && (id === 0 || id > this.#lastRequest)) {
      const message = `Apache Iggy answered request ${id}; the last one that was made is ${this.#lastRequest}`
      throw new MillraceError("protocol", message)
    }
  }

  #write({ id, operation, code, context, frame, owner }: Outgoing): void {
    const { client, session, version } = this.#lifeline.granted
    const stamped = version === "0.12" && operation !== nonReplicated && operationClass(operation) !== "partition"
    const stamp = stamped ? randomU128(this.#options.random) : 0n
    writeRequestHeader(frame, { client, session, request: id, operation, code, stamp, context })
    if (owner === undefined) {
      this.#lifeline.write(frame)
      return
    }
    owner.pin()
    this.#writing.add(frame)
    this.#lifeline.write(frame, () => {
      this.#writing.delete(frame)
      owner.unpin()
    })
  }
}

function requestFrame<Q>(command: Command<Q, unknown>, query: Q, version: WireVersion): Buffer {
  const writer = new ByteWriter(headerBytes + 128)
  writer.zeros(headerBytes)
  try {
    command.request.write(writer, query, version)
  } catch (error) {
    if (error instanceof RangeError || error instanceof TypeError) {
      throw new InvalidError(`${command.name} cannot be encoded: ${error.message}`, { cause: error })
    }
    throw error
  }
  return writer.bytes()
}
