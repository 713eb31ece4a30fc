/** For tests: an engine in this thread, on a directory of its own, with a clock that stands still. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import {
  type AppendResult,
  batchId,
  type EncodedBatch,
  errorFromWire,
  Headers,
  type Identity,
  type ReadLimits,
  type TopicDescription,
  type TopicName,
  type TopicSpec,
  type WireRecord,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { EmbeddedBatchWriter } from "../batch/batch-writer.ts"
import type { EmbeddedBatch } from "../batch/sealed-batch.ts"
import { newSlabPools } from "../batch/slab.ts"
import { encodedBatch } from "../reader.ts"
import { Engine } from "./engine.ts"
import type { ProcessTable } from "./group-process.ts"
import type { SlotRead } from "./reader-slot.ts"
import type { PollAnswer } from "./readers.ts"
import type { EngineReply } from "./request.ts"
import { StoreDirectory } from "./store-directory.ts"

/** The topic that most tests speak of. */
export const log: TopicName = { stream: "s", topic: "log" }

/** How long a write waits for other processes here. */
export const testLockBoundMs: number = 30

const poll: ReadLimits = { maxRecords: 1_000_000, maxBytes: 64 << 20, minRecords: 1, maxWaitMs: 0 }

/** What a read gave for one partition. */
export interface Got {
  readonly batches: readonly EncodedBatch[]
  readonly nextOffset: bigint
  readonly head: bigint
}

export class EngineFixture {
  readonly clock: VirtualClock = new VirtualClock()
  readonly path: string
  readonly replies: Map<number, EngineReply> = new Map()
  readonly #pools = newSlabPools()
  readonly #processes: ProcessTable | undefined
  #engine: Engine
  #id = 0
  #batches = 0n
  #reader = 0

  /** @param options `processes`: which ones run, for tests that end some. */
  constructor(
    path: string = mkdtempSync(join(tmpdir(), "millrace-test-")),
    options: { readonly processes?: ProcessTable } = {},
  ) {
    this.path = path
    this.#processes = options.processes
    this.#engine = this.#open()
  }

  get engine(): Engine {
    return this.#engine
  }

  /** What a query of the database answers, on a connection of its own. */
  look(sql: string): Record<string, unknown>[] {
    const database = new DatabaseSync(StoreDirectory.existing(this.path).database, { readOnly: true })
    try {
      return database.prepare(sql).all()
    } finally {
      database.close()
    }
  }

  /** Closes the store and opens it again, between which the files may be changed. */
  reopen(between: () => void = () => {}): void {
    this.#engine.close()
    between()
    this.#engine = this.#open()
  }

  [Symbol.dispose](): void {
    this.#engine.close()
    rmSync(this.path, { recursive: true, force: true })
  }

  /** Asks without waiting; the answer is in `replies` once there is one. */
  ask(...requests: readonly { readonly name: string; readonly args: unknown }[]): number[] {
    const numbered = requests.map(({ name, args }) => ({ id: ++this.#id, name, args: structuredClone(args) }))
    this.#engine.submit(numbered)
    return numbered.map(({ id }) => id)
  }

  /** The answer to a request. @throws the command's error */
  answer<R>(id: number): R {
    const reply = this.replies.get(id)
    if (reply === undefined) throw new Error(`request ${id} is not answered yet`)
    if ("error" in reply) throw errorFromWire(reply.error)
    return reply.value as R
  }

  call<R>(name: string, args: unknown): R {
    const [id] = this.ask({ name, args })
    return this.answer<R>(id as number)
  }

  createTopic(spec: Partial<TopicSpec> = {}, name: TopicName = log): TopicDescription {
    const [id] = this.ask({ name: "catalog.createStream", args: name.stream })
    const reply = this.replies.get(id as number)
    if (reply !== undefined && "error" in reply && reply.error.kind !== "already-exists")
      throw errorFromWire(reply.error)
    return this.call("catalog.createTopic", {
      name,
      spec: {
        partitions: 1,
        durability: "synced",
        offsetDurability: "synced",
        deduplicationWindowMs: 120_000,
        deduplicateIds: false,
        ...spec,
      },
    })
  }

  /** A sealed batch of these records. */
  batch(
    topic: TopicDescription,
    records: readonly Partial<WireRecord>[],
    options: { readonly partition?: number; readonly resend?: boolean; readonly id?: bigint } = {},
  ): EmbeddedBatch {
    const { stream, topic: name, lineage, durability } = topic
    const target = { topic: { stream, topic: name }, lineage, durability, partition: options.partition ?? 0 }
    const writer = new EmbeddedBatchWriter(target, this.#pools, { records: 1 << 20, bytes: 64 << 20 })
    for (const record of records) writer.tryAppend(wireRecord(record))
    const millis = Number(this.clock.nowMicros() / 1000n)
    return writer.seal({
      id: options.id ?? batchId(millis, 0, ++this.#batches),
      timestampMicros: this.clock.nowMicros(),
      resend: options.resend ?? false,
    })
  }

  appendRequest(
    batch: EmbeddedBatch,
    identity?: Identity & { readonly sequence: number },
  ): { readonly name: string; readonly args: unknown } {
    const { slab, bytes, checksum, stamp } = batch.content
    const args = { ...batch.target, slab: slab.buffer, bytes, checksum, resend: stamp.resend }
    return { name: "log.append", args: identity === undefined ? args : { ...args, identity } }
  }

  append(batch: EmbeddedBatch, identity?: Identity & { readonly sequence: number }): AppendResult {
    const { name, args } = this.appendRequest(batch, identity)
    return this.call(name, args)
  }

  /** `count` records with payloads of so many bytes. */
  appendMany(
    topic: TopicDescription,
    count: number,
    options: { bytes?: number; partition?: number } = {},
  ): AppendResult {
    const payload = new Uint8Array(options.bytes ?? 100).fill(7)
    const records = Array.from({ length: count }, () => ({ payload }))
    return this.append(this.batch(topic, records, { partition: options.partition ?? 0 }))
  }

  /** Everything from an offset on that one poll gives. @throws the partition's error */
  read(
    topic: TopicDescription,
    offset: bigint,
    options: { partition?: number; limits?: Partial<ReadLimits> } = {},
  ): Got {
    const reader = ++this.#reader
    const { stream, topic: name, lineage } = topic
    const position = { slot: 1, stream, topic: name, partition: options.partition ?? 0, offset, lineage }
    this.call("reader.set", { reader, slots: [1], fresh: [position] })
    try {
      const [id] = this.ask({ name: "reader.next", args: { reader, limits: { ...poll, ...options.limits } } })
      return this.got(id as number)
    } finally {
      this.call("reader.close", reader)
    }
  }

  /** What a poll of one partition answered. */
  got(id: number): Got {
    const { reads, buffers } = this.answer<PollAnswer>(id)
    const [read] = reads
    if (read === undefined) return { batches: [], nextOffset: -1n, head: -1n }
    return decode(read, buffers)
  }

  /** The payloads from an offset on, as numbers of their bytes. */
  lengths(topic: TopicDescription, offset: bigint = 0n): number[] {
    return this.read(topic, offset).batches.flatMap((batch) =>
      Array.from({ length: batch.count }, (_, index) => batch.payload(index)?.length ?? -1),
    )
  }

  watermarks(topic: TopicDescription, partition: number = 0): { readonly first: bigint; readonly end: bigint } {
    const { stream, topic: name } = topic
    const [outcome] = this.call<{ value: { first: bigint; end: bigint } }[]>("log.watermarks", [
      { stream, topic: name, partition },
    ])
    const { first, end } = (outcome as { value: { first: bigint; end: bigint } }).value
    return { first, end }
  }

  #open(): Engine {
    return new Engine(StoreDirectory.make(this.path), {
      clock: this.clock,
      random: seededRandom(7),
      sync: true,
      lockBoundMs: testLockBoundMs,
      ...(this.#processes === undefined ? {} : { processes: this.#processes }),
      answer: (replies) => {
        for (const reply of replies) this.replies.set(reply.id, reply)
      },
    })
  }
}

/** A record with what is not given left out. */
function wireRecord(record: Partial<WireRecord>): WireRecord {
  return {
    payload: record.payload === undefined ? new Uint8Array(0) : record.payload,
    key: record.key ?? null,
    headers: record.headers ?? Headers.empty,
    id: record.id,
    timestampMicros: record.timestampMicros,
  }
}

function decode(read: SlotRead, buffers: readonly ArrayBuffer[]): Got {
  if (read.error !== undefined) throw errorFromWire(read.error)
  const batches = read.batches.map((batch) => encodedBatch(batch, buffers))
  return { batches, nextOffset: read.nextOffset, head: read.head }
}
