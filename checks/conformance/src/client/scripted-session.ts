/** A session over one topic of one partition whose records stand at offsets that a test chooses: beyond 2^53, or with holes between. */
import {
  absentQueues,
  absentState,
  absentTransactions,
  type EncodedBatch,
  Headers,
  type LogReader,
  type Manifest,
  NotFoundError,
  type OffsetStore,
  type PartitionRead,
  type Position,
  type ReadLimits,
  type Session,
  type TopicDescription,
  UnsupportedError,
} from "@millrace/contract"

/** One record of the script. */
export interface ScriptedRecord {
  readonly offset: bigint
  readonly payload: Uint8Array
  readonly timestampMicros: bigint
}

const lineage = "scripted"

/**
 * @param records In the order of their offsets.
 * @param end What the partition's end is: at least the last offset + 1.
 */
export function scriptedSession(
  manifest: Manifest,
  topic: TopicDescription,
  records: readonly ScriptedRecord[],
  end: bigint,
): Session & { readonly stored: Map<string, bigint> } {
  const stored = new Map<string, bigint>()
  const place = { stream: topic.stream, topic: topic.topic, partition: 0 }
  const refuse = (): Promise<never> => Promise.reject(new UnsupportedError("the scripted log is only read"))
  const offsets: OffsetStore = {
    load: async (owner, partitions) =>
      partitions.map((): Position | undefined => {
        const offset = stored.get(owner.name)
        return offset === undefined ? undefined : { ...place, offset, lineage }
      }),
    store: async (owner, entries) =>
      entries.map((entry) => {
        stored.set(owner.name, entry.offset)
        return undefined
      }),
    delete: async (owner, entries) =>
      entries.map(() => {
        stored.delete(owner.name)
        return undefined
      }),
  }
  const anchors = { first: records[0]?.offset ?? end, last: records.at(-1)?.offset ?? end, end }
  const description = { ...topic, lineage }
  return {
    manifest: { ...manifest, read: { ...manifest.read, holes: true } },
    catalog: {
      createStream: refuse,
      createTopic: refuse,
      describeStream: async () => ({ stream: topic.stream, topics: 1 }),
      describeTopic: async (name) => {
        if (name.topic === topic.topic) return description
        throw new NotFoundError(`topic "${name.topic}" does not exist`)
      },
      listStreams: async () => [{ stream: topic.stream, topics: 1 }],
      listTopics: async () => [description],
      addPartitions: refuse,
      trim: refuse,
      purgeTopic: refuse,
      deleteTopic: refuse,
      deleteStream: refuse,
    },
    log: {
      keyHash: () => 0,
      writer: () => {
        throw new UnsupportedError("the scripted log is only read")
      },
      identify: refuse,
      append: refuse,
      openReader: () => new ScriptedReader(place, records, end),
      locate: async (queries) =>
        queries.map(({ at }) => {
          const offset =
            at.kind === "timestampMicros"
              ? (records.find((record) => record.timestampMicros >= at.value)?.offset ?? end)
              : anchors[at.kind]
          return { ...place, offset, lineage }
        }),
      watermarks: async (partitions) => partitions.map(() => ({ ...place, first: anchors.first, end, lineage })),
    },
    offsets,
    groups: { create: refuse, describe: refuse, delete: refuse, join: refuse },
    queues: absentQueues("scripted log", manifest.queues),
    transactions: absentTransactions("scripted log", manifest.transactions),
    state: absentState("scripted log", manifest.state),
    native: undefined,
    close: async () => {},
    stored,
  }
}

class ScriptedReader implements LogReader {
  readonly #place: { stream: string; topic: string; partition: number }
  readonly #records: readonly ScriptedRecord[]
  readonly #end: bigint
  #position: bigint | undefined
  #wake: (() => void) | undefined
  #closed = false

  constructor(
    place: { stream: string; topic: string; partition: number },
    records: readonly ScriptedRecord[],
    end: bigint,
  ) {
    this.#place = place
    this.#records = records
    this.#end = end
  }

  set(positions: readonly Position[]): void {
    this.#position = positions[0]?.offset
    this.#wake?.()
  }

  async next(limits: ReadLimits): Promise<PartitionRead[]> {
    if (!this.#ready() && limits.maxWaitMs > 0) await this.#wait(limits.maxWaitMs)
    if (this.#closed || !this.#ready()) return []
    const from = this.#position as bigint
    const record = this.#records.find(({ offset }) => offset >= from)
    const nextOffset = record === undefined ? this.#end : record.offset + 1n
    this.#position = nextOffset
    const batches = record === undefined ? [] : [oneRecord(record)]
    return [{ ...this.#place, batches, nextOffset, head: this.#end, lineage }]
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#wake?.()
  }

  #ready(): boolean {
    return this.#position !== undefined && this.#position < this.#end
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }
}

function oneRecord(record: ScriptedRecord): EncodedBatch {
  return {
    count: 1,
    bytes: record.payload.length,
    firstOffset: record.offset,
    lastOffset: record.offset,
    offset: () => record.offset,
    indexOf: (offset) => (offset <= record.offset ? 0 : 1),
    payload: () => record.payload,
    key: () => null,
    headers: () => Headers.empty,
    id: () => undefined,
    timestampMicros: () => record.timestampMicros,
    originTimestampMicros: () => record.timestampMicros,
    checksum: () => undefined,
  }
}
