/** What the tests of readers, offsets and groups work on: a server of their own, sessions, topics, and records to read. */
import type { TestContext } from "node:test"
import {
  batchId,
  Headers,
  type LogReader,
  MillraceError,
  type PartitionRead,
  type ReadPosition,
  type Session,
  type TopicDescription,
  type TopicName,
} from "@millrace/contract"
import { type NatsOptions, type Server, serverNeed, startNats } from "@millrace/servers"
import { natsDriver } from "./driver.ts"

/** Longer than this nothing in a test takes unless it is stuck, in ms. */
export const patienceMs = 20_000

/** A server, and the sessions on it; all of it ends with the test. */
export class Shop {
  readonly server: Server
  readonly #sessions: Session[] = []
  #batches = 0

  private constructor(server: Server) {
    this.server = server
  }

  /** `undefined` when there is no server to be had: the test is skipped. */
  static async open(t: TestContext, options: NatsOptions = {}): Promise<Shop | undefined> {
    const need = await serverNeed("nats", { to: "start" })
    if (need !== undefined) {
      t.skip(`needs nats: ${need}`)
      return undefined
    }
    const shop = new Shop(await startNats(options))
    t.after(() => shop.close())
    return shop
  }

  /** By the proxy, where there is one. */
  session(): Promise<Session> {
    return this.#open(this.server.ports)
  }

  /** Past the proxy. */
  directSession(): Promise<Session> {
    const [, port] = /:(\d+)/.exec(this.server.directUrl.replace(/^nats:\/\//, "")) ?? []
    return this.#open([Number(port)])
  }

  async #open(ports: readonly number[]): Promise<Session> {
    const hosts = ports.map((port) => ({ host: "127.0.0.1", port }))
    const target = { scheme: "nats", hosts, path: "", options: {} }
    const session = await natsDriver.connect(target, { timeoutMs: patienceMs })
    this.#sessions.push(session)
    return session
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#sessions.map((session) => session.close()))
    await this.server.stop()
  }

  topic(session: Session, name: TopicName, partitions = 1): Promise<TopicDescription> {
    return session.catalog.createTopic(name, {
      partitions,
      durability: session.manifest.append.durability[0] ?? "written",
      offsetDurability: "written",
      deduplicationWindowMs: 120_000,
      deduplicateIds: false,
    })
  }

  /** Appends texts as one batch. */
  async append(
    session: Session,
    topic: TopicDescription,
    options: { partition?: number; texts: readonly string[] },
  ): Promise<void> {
    const { partition = 0, texts } = options
    const { batchRecords, batchBytes } = session.manifest.limits
    const writer = session.log.writer(topic, partition, { records: batchRecords, bytes: batchBytes })
    for (const text of texts) {
      const payload = new TextEncoder().encode(text)
      writer.tryAppend({ payload, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined })
    }
    this.#batches++
    const batch = writer.seal({
      id: batchId(Date.now(), this.#batches & 0xfff, BigInt(this.#batches)),
      timestampMicros: 1n,
      resend: false,
    })
    try {
      await session.log.append(batch, {})
    } finally {
      batch.release()
    }
  }
}

/** A reader of one topic that keeps what it read as texts, `partition:offset:text`. */
export class Reading {
  readonly reader: LogReader
  readonly seen: string[] = []
  readonly errors: MillraceError[] = []
  readonly nextOffsets: Map<number, bigint> = new Map()
  readonly heads: Map<number, bigint> = new Map()
  /** Rejections of polls. */
  readonly refusals: MillraceError[] = []

  constructor(session: Session, topic: TopicDescription, from: Readonly<Record<number, bigint>> = { 0: 0n }) {
    this.reader = session.log.openReader({ isolation: "committed" })
    const { stream, topic: name, lineage } = topic
    this.reader.set(
      Object.entries(from).map(
        ([partition, offset]): ReadPosition => ({ stream, topic: name, partition: Number(partition), offset, lineage }),
      ),
    )
  }

  async poll(
    limits: { readonly maxRecords?: number; readonly maxBytes?: number; readonly maxWaitMs?: number } = {},
  ): Promise<void> {
    const { maxRecords = 1000, maxBytes = 1_000_000, maxWaitMs = 500 } = limits
    let reads: PartitionRead[]
    try {
      reads = await this.reader.next({ maxRecords, maxBytes, minRecords: 1, maxWaitMs })
    } catch (error) {
      if (!(error instanceof MillraceError && error.retryable)) throw error
      this.refusals.push(error)
      return
    }
    for (const read of reads) this.#take(read)
  }

  /** Polls until there are so many records, or anything else that is asked for. */
  async until(what: string, done: () => boolean, limits: Parameters<Reading["poll"]>[0] = {}): Promise<void> {
    const deadline = performance.now() + patienceMs
    while (!done()) {
      if (performance.now() > deadline) {
        throw new Error(
          `${what} did not come: ${this.seen.length} records, errors ${this.errors.map(String)}, refused ${this.refusals.at(-1)}`,
        )
      }
      await this.poll(limits)
    }
  }

  #take(read: PartitionRead): void {
    if (read.error !== undefined) {
      this.errors.push(read.error)
      return
    }
    this.nextOffsets.set(read.partition, read.nextOffset)
    this.heads.set(read.partition, read.head)
    for (const batch of read.batches) {
      for (let index = 0; index < batch.count; index++) {
        const text = new TextDecoder().decode(batch.payload(index) ?? new Uint8Array())
        this.seen.push(`${read.partition}:${batch.offset(index)}:${text}`)
      }
    }
  }
}

/** `prefix0`, `prefix1` and so on. */
export function numbered(prefix: string, from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, index) => `${prefix}${from + index}`)
}

/** What `Reading.seen` holds when partition 0 was read from its start without a gap or a repetition. */
export function inOrder(texts: readonly string[]): string[] {
  return texts.map((text, index) => `0:${index}:${text}`)
}
