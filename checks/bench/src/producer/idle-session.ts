/** A backend that does nothing: what is measured over it is the cost of the producer layer alone. */
import {
  type AppendResult,
  absentQueues,
  absentState,
  absentTransactions,
  type BatchStamp,
  type BatchWriter,
  type Catalog,
  type Manifest,
  murmur2,
  type SealedBatch,
  type Session,
  type TopicDescription,
  UnsupportedError,
  type WireRecord,
} from "@millrace/contract"

const backend = "idle log"
const absent = { supported: false, reason: "it keeps nothing", instead: "Use a real log" } as const
const present = { supported: true } as const

const manifest: Manifest = {
  backend,
  append: {
    dedup: "sequence",
    inFlight: { offsets: 5, stored: 5 },
    duplicates: "counted",
    identityScope: "producer",
    idLookup: "resend",
    durability: ["synced"],
    compression: ["none"],
  },
  read: { holes: false, timestampResolutionMicros: 1, originTimestamp: "always", ids: "all", filters: "client" },
  catalog: {
    streams: "objects",
    groups: "names",
    purge: "restarts",
    expiry: present,
    sizeRetention: present,
    addPartitions: absent,
    trim: absent,
  },
  offsets: { durability: ["synced"], range: "any" },
  groups: absent,
  staticMembers: absent,
  queues: absent,
  transactions: absent,
  state: absent,
  limits: {
    payloadBytes: 64_000_000,
    headersBytes: 100_000,
    headerNameBytes: 255,
    headerValueBytes: 100_000,
    keyBytes: 65_535,
    nameBytes: 255,
    partitions: 1000,
    batchBytes: 8 << 20,
    batchRecords: 100_000,
  },
}

/** A session with one topic of so many partitions under any name. Appends are answered in the next microtask, with offsets. */
export class IdleSession implements Session {
  readonly manifest: Manifest = manifest
  readonly catalog: Catalog
  readonly log: Session["log"]
  readonly offsets: Session["offsets"] = { load: refuse, store: refuse, delete: refuse }
  readonly groups: Session["groups"] = {
    create: refuse,
    describe: refuse,
    delete: refuse,
    join: refuse,
  }
  readonly queues: Session["queues"] = absentQueues(backend, absent)
  readonly transactions: Session["transactions"] = absentTransactions(backend, absent)
  readonly state: Session["state"] = absentState(backend, absent)
  readonly native: unknown = undefined
  readonly #ends: number[]
  #identities = 0n

  constructor(partitions: number) {
    this.#ends = new Array<number>(partitions).fill(0)
    this.catalog = catalogOf(partitions)
    this.log = {
      keyHash: murmur2,
      writer: (_topic, partition, limits) => new CountingWriter(partition, limits),
      identify: (_topic, bump) =>
        Promise.resolve(
          bump === undefined
            ? { producerId: ++this.#identities, epoch: 0 }
            : { producerId: bump.producerId, epoch: bump.epoch + 1 },
        ),
      append: (batch) => Promise.resolve(this.#append(batch)),
      openReader: () => {
        throw refusal()
      },
      locate: refuse,
      watermarks: refuse,
    }
  }

  /** Records that were appended, over all partitions. */
  get appended(): number {
    return this.#ends.reduce((sum, end) => sum + end, 0)
  }

  close(): Promise<void> {
    return Promise.resolve()
  }

  #append(batch: SealedBatch): AppendResult {
    const base = this.#ends[batch.partition] as number
    this.#ends[batch.partition] = base + batch.count
    return { base: BigInt(base), contiguous: true, duplicates: 0 }
  }
}

/** Counts records and bytes; encodes and copies nothing. */
class CountingWriter implements BatchWriter {
  count = 0
  bytes = 0
  readonly #partition: number
  readonly #records: number
  readonly #bytes: number

  constructor(partition: number, limits: { readonly records: number; readonly bytes: number }) {
    this.#partition = partition
    this.#records = limits.records
    this.#bytes = limits.bytes
  }

  tryAppend({ payload, key }: WireRecord): boolean {
    const size = (payload === null ? 0 : payload.length) + (key === null ? 0 : key.length)
    if (this.count > 0 && (this.count >= this.#records || this.bytes + size > this.#bytes)) return false
    this.count++
    this.bytes += size
    return true
  }

  seal(_stamp: BatchStamp): SealedBatch {
    return new CountedBatch(this.#partition, this.count, this.bytes)
  }
}

class CountedBatch implements SealedBatch {
  readonly partition: number
  readonly count: number
  readonly bytes: number

  constructor(partition: number, count: number, bytes: number) {
    this.partition = partition
    this.count = count
    this.bytes = bytes
  }

  /** @throws UnsupportedError always, since nothing was kept: over this backend no batch may fail */
  records(): WireRecord[] {
    throw refusal()
  }

  split(): readonly [SealedBatch, SealedBatch] {
    throw refusal()
  }

  release(): void {}
}

function catalogOf(partitions: number): Catalog {
  const describeTopic: Catalog["describeTopic"] = ({ stream, topic }): Promise<TopicDescription> =>
    Promise.resolve({
      stream,
      topic,
      lineage: "1",
      partitions: Array.from({ length: partitions }, (_, partition) => ({ partition })),
      durability: "synced",
      offsetDurability: "synced",
      deduplicationWindowMs: 120_000,
      deduplicateIds: false,
    })
  return {
    createStream: refuse,
    createTopic: refuse,
    describeStream: (stream) => Promise.resolve({ stream, topics: 1 }),
    describeTopic,
    listStreams: refuse,
    listTopics: refuse,
    addPartitions: refuse,
    trim: refuse,
    purgeTopic: refuse,
    deleteTopic: refuse,
    deleteStream: refuse,
  }
}

function refuse(): Promise<never> {
  return Promise.reject(refusal())
}

function refusal(): UnsupportedError {
  return new UnsupportedError(`${backend}: it keeps nothing, so that only appends are answered`)
}
