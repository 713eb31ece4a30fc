/** Streams, topics and partitions as replies tell them (iggy-wire.md: Commands, Wire 0.12). */
import { byVersion, type Codec, list8, name, struct, u8, u32, u64, word } from "../wire/codec.ts"
import { type Options, options32, optionValue } from "./options.ts"

export interface Stream {
  readonly id: number
  readonly createdMicros: bigint
  readonly topicsCount: number
  readonly sizeBytes: bigint
  readonly messagesCount: bigint
  readonly name: string
  /** As a client set them. */
  readonly options: Options
  /** Filled in by the server at creation. Empty on wire 0.11. */
  readonly derivedOptions: Options
}

/** A stream with its topics. */
export interface StreamDetails extends Stream {
  readonly topics: readonly Topic[]
}

/** Stands for "never" as an expiry and for "unlimited" as a size. 0 stands for the server's default in requests. */
export const withoutLimit: bigint = (1n << 64n) - 1n

export interface Topic {
  readonly id: number
  readonly createdMicros: bigint
  readonly partitionsCount: number
  /** `withoutLimit`: never. */
  readonly messageExpiryMicros: bigint
  /** Only remembered by the server: it compresses nothing. */
  readonly compression: "none" | "gzip"
  /** `withoutLimit`: unlimited. */
  readonly maxSizeBytes: bigint
  readonly sizeBytes: bigint
  readonly messagesCount: bigint
  readonly name: string
  /** As a client set them. */
  readonly options: Options
  /** Filled in by the server at creation. */
  readonly derivedOptions: Options
}

export interface Partition {
  readonly id: number
  readonly createdMicros: bigint
  /** 0 in the reply to a creation, at least 1 later. */
  readonly segmentsCount: number
  /** Of the newest message; 0 also where there is none: `messagesCount` tells. */
  readonly currentOffset: bigint
  readonly sizeBytes: bigint
  readonly messagesCount: bigint
  /** What requests to the partition must carry on wire 0.12; zeros on 0.11. */
  readonly context: PartitionContext
  /** Nodes that hold the partition, and those of them that are in sync. Empty on wire 0.11. */
  readonly memberNodes: readonly number[]
  readonly inSyncNodes: readonly number[]
}

/** Which life of a partition a request speaks to, and how new the metadata behind it is (iggy-wire.md: Wire 0.12). */
export interface PartitionContext {
  readonly incarnation: bigint
  /** 0: none captured. */
  readonly ownerGeneration: bigint
  readonly metadataOp: bigint
}

/** A topic with its partitions, by number. */
export interface TopicDetails extends Topic {
  readonly partitions: readonly Partition[]
}

export const noContext: PartitionContext = { incarnation: 0n, ownerGeneration: 0n, metadataOp: 0n }

export const partitionContext: Codec<PartitionContext> = struct<PartitionContext>({
  incarnation: u64,
  ownerGeneration: u64,
  metadataOp: u64,
})

/** Takes no bytes; reads as `value`. */
function fixed<T>(value: T): Codec<T> {
  return { write: () => undefined, read: () => value }
}

const fromWire12 = <T>(codec: Codec<T>, before: T): Codec<T> => byVersion<T>({ "0.11": fixed(before), "0.12": codec })

export const stream: Codec<Stream> = struct<Stream>({
  id: u32,
  createdMicros: u64,
  topicsCount: u32,
  sizeBytes: u64,
  messagesCount: u64,
  name,
  options: options32,
  derivedOptions: fromWire12<Options>(options32, []),
})

const compression = word({ none: 1, gzip: 2 }, "the compression of a topic")

const topic11: Codec<Topic> = struct<Topic>({
  id: u32,
  createdMicros: u64,
  partitionsCount: u32,
  messageExpiryMicros: u64,
  compression,
  maxSizeBytes: u64,
  sizeBytes: u64,
  messagesCount: u64,
  name,
  options: options32,
  derivedOptions: options32,
})

type Topic12 = Omit<Topic, "messageExpiryMicros" | "compression" | "maxSizeBytes">

const topic12Fields: Codec<Topic12> = struct<Topic12>({
  id: u32,
  createdMicros: u64,
  partitionsCount: u32,
  sizeBytes: u64,
  messagesCount: u64,
  name,
  options: options32,
  derivedOptions: options32,
})

const topic12: Codec<Topic> = {
  write: topic12Fields.write,
  read(reader, version) {
    const fields = topic12Fields.read(reader, version)
    const all = [...fields.options, ...fields.derivedOptions]
    const number = (key: string): bigint => {
      const value = optionValue(all, key)
      return typeof value === "bigint" ? value : withoutLimit
    }
    return {
      ...fields,
      messageExpiryMicros: number("message_expiry"),
      compression: optionValue(all, "compression_algorithm") === "gzip" ? "gzip" : "none",
      maxSizeBytes: number("max_topic_size"),
    }
  },
}

export const topic: Codec<Topic> = byVersion<Topic>({ "0.11": topic11, "0.12": topic12 })

/** The least that a topic takes on any wire, name and option blocks included. */
export const leastTopicBytes = 42
const leastPartitionBytes = 40

const nodes = list8(u8, 1)

const partition: Codec<Partition> = struct<Partition>({
  id: u32,
  createdMicros: u64,
  segmentsCount: u32,
  currentOffset: u64,
  sizeBytes: u64,
  messagesCount: u64,
  context: fromWire12(partitionContext, noContext),
  memberNodes: fromWire12<readonly number[]>(nodes, []),
  inSyncNodes: fromWire12<readonly number[]>(nodes, []),
})

export const streamDetails: Codec<StreamDetails> = withItems<Stream, Topic, "topics">(stream, topic, {
  key: "topics",
  count: (value) => value.topicsCount,
  leastBytes: leastTopicBytes,
})

export const topicDetails: Codec<TopicDetails> = withItems<Topic, Partition, "partitions">(topic, partition, {
  key: "partitions",
  count: (value) => value.partitionsCount,
  leastBytes: leastPartitionBytes,
})

/** A structure followed by as many items as it says. */
export function withItems<Head extends object, Item, Key extends string>(
  head: Codec<Head>,
  item: Codec<Item>,
  how: { readonly key: Key; readonly count: (head: Head) => number; readonly leastBytes: number },
): Codec<Head & { readonly [K in Key]: readonly Item[] }> {
  type Whole = Head & { readonly [K in Key]: readonly Item[] }
  const items = (count: number): Codec<readonly Item[]> => ({
    write(writer, values, version) {
      for (const one of values) item.write(writer, one, version)
    },
    read(reader, version) {
      const values: Item[] = []
      reader.count(count, how.leastBytes)
      for (let i = 0; i < count; i++) values.push(item.read(reader, version))
      return values
    },
  })
  return {
    write(writer, value, version) {
      head.write(writer, value, version)
      items(0).write(writer, value[how.key], version)
    },
    read(reader, version) {
      const first = head.read(reader, version)
      return { ...first, [how.key]: items(how.count(first)).read(reader, version) } as Whole
    },
  }
}
