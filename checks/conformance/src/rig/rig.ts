/** One driver on the bench: sessions, topics of their own for each test, batches, and everything closed at the end. */
import { randomBytes } from "node:crypto"
import {
  type AppendOptions,
  type AppendResult,
  batchId,
  type ConnectTarget,
  type Manifest,
  type SealedBatch,
  type Session,
  type TopicDescription,
  type TopicName,
  type TopicPartition,
  type TopicSpec,
  type Watermarks,
} from "@millrace/contract"
import type { DriverUnderTest } from "./factory.ts"
import { type Draft, type Seen, wire } from "./records.ts"
import { Tail } from "./tail.ts"

const connectTimeoutMs = 20_000

export class Rig {
  readonly under: DriverUnderTest
  #target: ConnectTarget | undefined
  #session: Session | undefined
  readonly #others = new Set<Session>()
  /** Servers keep what earlier runs left: names differ between runs. */
  readonly #run = randomBytes(3).toString("hex")
  #names = 0
  #batches = 0

  constructor(under: DriverUnderTest) {
    this.under = under
  }

  async open(): Promise<void> {
    this.#target = await this.under.target()
    this.#session = await this.connect()
    this.#others.delete(this.#session)
  }

  async close(): Promise<void> {
    await Promise.all([...this.#others].map((session) => session.close()))
    await this.#session?.close()
    await this.under.cleanup()
  }

  /** The session that tests share: each works on topics of its own. */
  get session(): Session {
    if (this.#session === undefined) throw new Error("the rig is not open")
    return this.#session
  }

  /** The most that the driver can do; known before any session is open, so that a test can be skipped by it. */
  get manifest(): Manifest {
    return this.#session?.manifest ?? this.under.driver.manifest
  }

  /** Another session on the same target, or with `fresh` on a target of its own. Closed at the end if the test does not. */
  async connect(where: "same" | "fresh" = "same"): Promise<Session> {
    const target = where === "same" && this.#target !== undefined ? this.#target : await this.under.target()
    const session = await this.under.driver.connect(target, { timeoutMs: connectTimeoutMs })
    this.#others.add(session)
    return session
  }

  /** A name that no other test uses. */
  name(prefix: string): string {
    this.#names++
    return `${prefix}-${this.#run}-${this.#names}`
  }

  /** The settings of a topic, with the defaults that the core uses. */
  spec(settings: Partial<TopicSpec> = {}): TopicSpec {
    const { append, offsets } = this.manifest
    return {
      partitions: 1,
      durability: append.durability[0] ?? "synced",
      offsetDurability: offsets.durability[0] ?? "synced",
      deduplicationWindowMs: append.idLookup === "none" ? 0 : 120_000,
      deduplicateIds: false,
      ...settings,
    }
  }

  /** A new stream with one new topic. */
  async topic(settings: Partial<TopicSpec> = {}, session: Session = this.session): Promise<TopicDescription> {
    const name = { stream: this.name("stream"), topic: this.name("topic") }
    await this.ensureStream(name.stream, session)
    return session.catalog.createTopic(name, this.spec(settings))
  }

  /** Creates the stream where streams are objects; elsewhere every stream exists. */
  async ensureStream(stream: string, session: Session = this.session): Promise<void> {
    if (this.manifest.catalog.streams === "objects") await session.catalog.createStream(stream)
  }

  /** A batch of these records, or an error when they do not fit into one. */
  batch(
    topic: TopicDescription,
    partition: number,
    drafts: readonly Draft[],
    options: { readonly session?: Session; readonly id?: bigint; readonly resend?: boolean } = {},
  ): SealedBatch {
    const { batchRecords, batchBytes } = this.manifest.limits
    const log = (options.session ?? this.session).log
    const writer = log.writer(topic, partition, { records: batchRecords, bytes: batchBytes })
    for (const [index, draft] of drafts.entries()) {
      if (!writer.tryAppend(wire(draft)))
        throw new Error(`record ${index} of ${drafts.length} did not fit into the batch`)
    }
    const stamp = { id: options.id ?? this.batchId(), timestampMicros: this.now(), resend: options.resend ?? false }
    return writer.seal(stamp)
  }

  /** Builds a batch, or as many as the writer wants, appends them in order, and gives their buffers back. The answer is the first one's. */
  async append(
    topic: TopicDescription,
    partition: number,
    drafts: readonly Draft[],
    options: AppendOptions & { readonly session?: Session } = {},
  ): Promise<AppendResult> {
    const session = options.session ?? this.session
    const { batchRecords, batchBytes } = this.manifest.limits
    let first: AppendResult | undefined
    for (let next = 0; next < drafts.length; ) {
      const writer = session.log.writer(topic, partition, { records: batchRecords, bytes: batchBytes })
      while (next < drafts.length && writer.tryAppend(wire(drafts[next] as Draft))) next++
      const batch = writer.seal({ id: this.batchId(), timestampMicros: this.now(), resend: false })
      try {
        const answer = await session.log.append(batch, options)
        first ??= answer
      } finally {
        batch.release()
      }
    }
    if (first === undefined) throw new Error("there is nothing to append")
    return first
  }

  batchId(): bigint {
    this.#batches++
    return batchId(Number(this.now() / 1000n), this.#batches & 0xfff, BigInt(this.#batches))
  }

  now(): bigint {
    return BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000))
  }

  /** A reader over some partitions of a topic, each from an offset. */
  tail(topic: TopicDescription, from: Readonly<Record<number, bigint>>, session: Session = this.session): Tail {
    return Tail.open(session, topic, from)
  }

  /** Everything that a partition holds from an offset (by default its first) to its present end. */
  async readAll(topic: TopicDescription, partition: number, from?: bigint, session?: Session): Promise<Seen[]> {
    const marks = await this.watermarks(topic, partition, session)
    const start = from ?? marks.first
    const tail = this.tail(topic, { [partition]: start }, session)
    try {
      const seen: Seen[] = []
      while ((tail.position(partition) ?? start) < marks.end) seen.push(...(await tail.some()))
      return seen
    } finally {
      await tail.close()
    }
  }

  async watermarks(topic: TopicName, partition: number, session: Session = this.session): Promise<Watermarks> {
    const [marks] = await session.log.watermarks([at(topic, partition)])
    if (marks === undefined || marks instanceof Error) throw marks ?? new Error("watermarks answered nothing")
    return marks
  }
}

/** A partition of a topic, without what else a description carries. */
export function at(topic: TopicName, partition: number): TopicPartition {
  return { stream: topic.stream, topic: topic.topic, partition }
}
