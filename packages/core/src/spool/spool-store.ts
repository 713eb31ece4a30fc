import {
  AlreadyExistsError,
  type BatchWriter,
  batchId,
  ClosedError,
  Headers,
  InvalidError,
  type LogReader,
  MillraceError,
  NotFoundError,
  type PartitionRead,
  type SealedBatch,
  type Session,
  type TopicDescription,
  type TopicSpec,
  type Watermarks,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { wrongFormat } from "./journal-entry.ts"

/** What a store works with. */
export interface StoreContext {
  readonly clock: Clock
  readonly random: Random
  /** How errors call it. */
  readonly directory: string
}

const stream = "millrace-spool"

/** The format of the whole: which topics there are, and what their records mean. */
const format = 1
const formatText = /^millrace spool (\d+)$/

/** Most bytes and records of one batch of the spool: as much as is written and synced within some milliseconds. */
const batchLimits = { records: 1 << 16, bytes: 2 << 20 } as const

/** Most bytes of one read. */
const readBytes = 1 << 20

const spec: TopicSpec = {
  partitions: 1,
  durability: "synced",
  offsetDurability: "synced",
  deduplicationWindowMs: 0,
  deduplicateIds: false,
}

/**
 * The embedded log that a spool lives in, by the contract alone: a stream with a topic `format`, one `journal`, one `refused`, and one
 * `lane-<n>` for each target topic, all of one partition.
 */
export class SpoolStore {
  readonly session: Session
  readonly #context: StoreContext

  private constructor(session: Session, context: StoreContext) {
    this.session = session
    this.#context = context
  }

  /**
   * Opens what is in the session, or makes it. The session belongs to the store from here on, also when this fails.
   * @throws StorageError for another format, InvalidError for a log that is no spool, and whatever the session says
   */
  static async open(session: Session, context: StoreContext): Promise<SpoolStore> {
    const store = new SpoolStore(session, context)
    try {
      await store.#prepare()
    } catch (error) {
      await session.close().catch(() => {})
      throw error
    }
    return store
  }

  /** How errors call it. */
  get directory(): string {
    return this.#context.directory
  }

  /** The topic, made where it is missing. */
  async topic(name: string): Promise<TopicDescription> {
    const { catalog } = this.session
    try {
      return await catalog.describeTopic({ stream, topic: name })
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error
    }
    try {
      return await catalog.createTopic({ stream, topic: name }, spec)
    } catch (error) {
      if (!(error instanceof AlreadyExistsError)) throw error
      return await catalog.describeTopic({ stream, topic: name })
    }
  }

  /** A batch of a topic, to be filled and then appended. */
  writer(topic: TopicDescription): BatchWriter {
    return this.session.log.writer(topic, 0, batchLimits)
  }

  /** Closes a batch. */
  seal(writer: BatchWriter): SealedBatch {
    const { clock, random } = this.#context
    const timestampMicros = clock.nowMicros()
    const low = (BigInt(random.uint32() & 0x3ff) << 32n) | BigInt(random.uint32())
    const id = batchId(Number(timestampMicros / 1000n), random.uint32() & 0xfff, low)
    return writer.seal({ id, timestampMicros, resend: false })
  }

  /** Appends a batch, which stays the caller's; settles once it is synced. */
  async appendSealed(batch: SealedBatch): Promise<{ readonly base: bigint }> {
    const { base } = await this.session.log.append(batch, {})
    if (base === undefined) throw new MillraceError("protocol", "the log of the spool tells no offsets")
    return { base }
  }

  /** Appends one record that is nothing but a payload. */
  async appendPayload(topic: TopicDescription, payload: Uint8Array): Promise<{ readonly base: bigint }> {
    const writer = this.writer(topic)
    writer.tryAppend({ payload, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined })
    const batch = this.seal(writer)
    try {
      return await this.appendSealed(batch)
    } finally {
      batch.release()
    }
  }

  async watermarks(topic: TopicDescription): Promise<Watermarks> {
    const place = { stream, topic: topic.topic, partition: 0 }
    const [answer] = await this.session.log.watermarks([place])
    if (answer === undefined) throw new MillraceError("protocol", "the log of the spool answered no watermarks")
    if (answer instanceof MillraceError) throw answer
    return answer
  }

  /** A reader of a topic from an offset on. */
  reader(topic: TopicDescription, from: bigint): SpoolReader {
    const reader = this.session.log.openReader({ isolation: "committed" })
    reader.set([{ stream, topic: topic.topic, partition: 0, offset: from, lineage: topic.lineage }])
    return new SpoolReader(reader)
  }

  /** Gives up what lies below an offset. */
  async trim(topic: TopicDescription, before: bigint): Promise<void> {
    await this.session.catalog.trim({ stream, topic: topic.topic, partition: 0 }, before)
  }

  close(): Promise<void> {
    return this.session.close()
  }

  async #prepare(): Promise<void> {
    const { catalog } = this.session
    if (!(await this.#exists(() => catalog.describeStream(stream)))) {
      const [other] = await catalog.listStreams()
      if (other !== undefined) throw this.#noSpool(other.stream)
      await catalog.createStream(stream)
    }
    await this.#checkFormat(await this.topic("format"))
  }

  /** The record is written last, so that a spool whose making was cut short is made anew. */
  async #checkFormat(topic: TopicDescription): Promise<void> {
    const { end } = await this.watermarks(topic)
    if (end === 0n) {
      await this.appendPayload(topic, new TextEncoder().encode(`millrace spool ${format}`))
      return
    }
    const reader = this.reader(topic, 0n)
    try {
      const { batches } = await reader.next()
      const text = new TextDecoder().decode(batches[0]?.payload(0) ?? new Uint8Array())
      const found = Number(formatText.exec(text)?.[1] ?? Number.NaN)
      if (Number.isNaN(found)) throw this.#noSpool(stream)
      if (found !== format) throw wrongFormat(found, this.directory)
    } finally {
      await reader.close()
    }
  }

  async #exists(question: () => Promise<unknown>): Promise<boolean> {
    try {
      await question()
      return true
    } catch (error) {
      if (error instanceof NotFoundError) return false
      throw error
    }
  }

  #noSpool(found: string): InvalidError {
    const { directory } = this
    return new InvalidError(
      `directory "${directory}" holds a log (with a stream "${found}") that is no spool: give the spool a directory of its own`,
      { context: { directory } },
    )
  }
}

/** A reader of one topic. A read that finds nothing answers no batches. */
export class SpoolReader {
  readonly #reader: LogReader

  constructor(reader: LogReader) {
    this.#reader = reader
  }

  /** What is there, at most a megabyte unless one batch is larger. @throws ClosedError, CorruptionError … */
  async next(): Promise<Exclude<PartitionRead, { error: MillraceError }>> {
    const limits = { maxRecords: batchLimits.records, maxBytes: readBytes, minRecords: 1, maxWaitMs: longestReadMs }
    const [read] = await this.#reader.next(limits)
    if (read === undefined) throw new ClosedError("the spool was closed while it was read")
    if (read.error !== undefined) throw read.error
    return read
  }

  close(): Promise<void> {
    return this.#reader.close()
  }
}

/** Read is only what is known to be there, so this is no wait that anybody sees; a log that does not answer is broken. */
const longestReadMs = 30_000
