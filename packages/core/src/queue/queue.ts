import {
  ClosedError,
  InvalidError,
  NotFoundError,
  type QueueBroker,
  type QueueDescription,
  type QueueSession,
  type QueueSpec,
  type TopicName,
} from "@millrace/contract"
import { attempt } from "../client/attempts.ts"
import type { LiveContext } from "../client/live-context.ts"
import { checkName, topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import { contextOfTopic } from "../client/topic-context.ts"
import { need } from "../client/topic-options.ts"
import type { Codec } from "../codec/codec.ts"
import { idOfText } from "../handler/dead-letter-record.ts"
import { type DeadLetter, type RedriveOptions, redriveLetters } from "../handler/redrive-letters.ts"
import { checkRoom } from "../handler/run-handler.ts"
import { RecordDecoder } from "../typed/record-decoder.ts"
import { LeasedConsumer } from "./leased-consumer.ts"
import type { QueueConsumer } from "./queue-consumer.ts"
import { checkQueueConsumerOptions, type QueueConsumerOptions } from "./queue-consumer-options.ts"
import type { QueueMessage } from "./queue-message.ts"
import { checkQueueOptions, type QueueOptions, type QueueSettings, specOf } from "./queue-options.ts"

/** A work queue as it is (table 4.3). */
export interface QueueInfo {
  readonly stream: string
  readonly topic: string
  readonly name: string
  /** What it was made with. */
  readonly spec: QueueSpec
  /** Records of the topic that were never handed out, as far as offsets tell. */
  readonly pending: bigint
  /** Messages that are handed out and not settled. */
  readonly ackPending: number
  /** Messages that are not settled and were handed out more than once, or wait to be. */
  readonly redelivered: number
  /** Messages that were given back, or whose wait is over, and that are not handed out again yet. */
  readonly delayed: number
  /** When it was made, in µs since 1970; absent where the backend does not tell. */
  readonly createdMicros: bigint | undefined
  /** By partition: all below `floor` is settled, nothing from `next` on was handed out yet. */
  readonly partitions: readonly { readonly partition: number; readonly floor: bigint; readonly next: bigint }[]
}

/**
 * A work queue over a topic, by name (`topic.queue(name)`; seed 003). Its messages are handed out one by one, each to one consumer at a
 * time, and settled one by one; several queues of one topic know nothing of each other. A thin handle: nothing is asked or made before a
 * method says so.
 *
 * @typeParam M Its messages: of a typed topic's queue they have values.
 */
export class Queue<M extends QueueMessage = QueueMessage> {
  readonly name: string
  readonly #context: LiveContext
  readonly #topic: TopicName
  readonly #settings: QueueSettings
  readonly #codec: Codec<unknown> | undefined

  /** @throws InvalidError for the name or an option, UnsupportedError where the backend has no queues */
  constructor(
    context: LiveContext,
    topic: TopicName,
    queue: { readonly name: string; readonly options: QueueOptions | undefined; readonly codec?: Codec<unknown> },
  ) {
    const { manifest } = context
    this.#context = context
    this.#topic = topic
    this.#codec = queue.codec
    this.name = checkName("queue", queue.name, manifest.limits)
    need(manifest, manifest.queues, { owner: `queue ${shown(this.name)}`, what: "work queues" })
    this.#settings = checkQueueOptions(this.#what, queue.options)
  }

  /**
   * Takes messages of the queue, which is made where it is missing.
   * @throws InvalidError for an option, and when the queue exists with other settings than were given: the message names them;
   *   NotFoundError for the topic, or for the queue with `createQueue: false`; ClosedError
   */
  async consumer(options?: QueueConsumerOptions): Promise<QueueConsumer<M>> {
    this.#context.assertOpen()
    const { deadLetter } = this.#settings
    const encryptor = options?.encryptor ?? this.#context.encryptor
    if (deadLetter !== undefined) checkRoom(this.#what, deadLetter.encryptor ?? encryptor)
    const session = await this.#open()
    try {
      const what = this.#what
      const settings = checkQueueConsumerOptions(`${what}: consumer`, options, session.spec)
      const decoder = this.#codec === undefined ? undefined : new RecordDecoder(this.#codec)
      const consumer = new LeasedConsumer(this.#context, {
        ...{ what, queue: this.name, topic: this.#topic, session, deadLetter, settings, decoder },
      })
      // Its messages are what the decoder makes them.
      return consumer as unknown as QueueConsumer<M>
    } catch (error) {
      await session.close()
      throw error
    }
  }

  /** @throws NotFoundError for the topic or the queue */
  async info(): Promise<QueueInfo> {
    const { stream, topic, queue, spec, undelivered, createdMicros, ...counts } = await this.#describe()
    const { ackPending, redelivered, delayed, partitions } = counts
    return {
      ...{ stream, topic, name: queue, spec, pending: undelivered, ackPending, redelivered, delayed, partitions },
      createdMicros,
    }
  }

  /**
   * Sends the dead letters of this queue back to the topic, where all of its queues and consumers meet them as new records. Each goes once:
   * progress is the queue's own, so that others that share the dead-letter topic are not touched.
   * @param options As of `redrive`; `filter` sees only this queue's.
   * @returns how many were sent
   * @throws InvalidError for a queue without `deadLetter`; else as `redrive`
   */
  async redrive(options?: RedriveOptions): Promise<number> {
    this.#context.assertOpen()
    const { deadLetter } = this.#settings
    if (deadLetter === undefined) {
      throw new InvalidError(`${this.#what} has no dead-letter topic: give topic.queue(name, { deadLetter })`)
    }
    const { stream, name: topic } = deadLetter.topic
    const wanted = options?.filter
    if (wanted !== undefined && typeof wanted !== "function") {
      throw new InvalidError(`${this.#what}: redrive: option "filter" is ${shown(wanted)}; it must be a function`)
    }
    const filter = (letter: DeadLetter): boolean => this.#isOwn(letter) && (wanted === undefined || wanted(letter))
    const own = `millrace-redrive-${idOfText(`${topicText(this.#topic)}\n${this.name}`).toString(16)}`
    const result = await redriveLetters(
      contextOfTopic(deadLetter.topic),
      { stream, topic },
      { ...options, name: options?.name ?? own, filter },
    )
    return result.sent
  }

  /** Forgets the queue and what it knows; its consumers fail with NotFoundError. The topic stays as it is. @throws NotFoundError */
  async delete(): Promise<void> {
    await this.#broker.delete(this.#topic, this.name)
  }

  get #what(): string {
    return `queue ${shown(this.name)} of topic "${topicText(this.#topic)}"`
  }

  get #broker(): QueueBroker {
    this.#context.assertOpen()
    return this.#context.session.queues
  }

  #isOwn({ queue, origin }: DeadLetter): boolean {
    return queue === this.name && origin.topic === this.#topic.topic && origin.stream === this.#topic.stream
  }

  async #open(): Promise<QueueSession> {
    const { given, createQueue } = this.#settings
    const present = await this.#present(createQueue)
    const spec = specOf(given, present?.spec)
    return await this.#asked("opening", () => this.#broker.open(this.#topic, this.name, spec))
  }

  /** The queue as it is; absent when it is missing and may be made. */
  async #present(createQueue: boolean): Promise<QueueDescription | undefined> {
    try {
      return await this.#describe()
    } catch (error) {
      // Of a topic that is missing it is `open` that tells.
      if (createQueue && error instanceof NotFoundError) return undefined
      throw error
    }
  }

  #describe(): Promise<QueueDescription> {
    return this.#asked("describing", () => this.#broker.describe(this.#topic, this.name))
  }

  async #asked<T>(doing: string, request: () => Promise<T>): Promise<T> {
    const { clock, publish } = this.#context
    const closing = new AbortController()
    const disown = this.#context.own({ shutdown: async () => closing.abort() })
    try {
      return await attempt(clock, publish, { what: `${doing} ${this.#what}`, request, signal: closing.signal })
    } catch (error) {
      throw closing.signal.aborted ? new ClosedError("the client was closed", { cause: error }) : error
    } finally {
      disown()
    }
  }
}
