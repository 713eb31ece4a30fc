import { type Lineage, MillraceError, NotFoundError, type TopicName, type TopicPartition } from "@millrace/contract"
import type { Connection } from "./connection.ts"
import { firstStreamName, isReservedName, parseSubject, streamName, subjectOf } from "./names.ts"
import { microsOf, type StreamConfig, type StreamInfo } from "./stream-info.ts"

/** What the metadata of partition 0 tells. The keys are stored: never rename. */
export const metadataKeys: Readonly<{
  lineage: string
  partitions: string
  maxBytes: string
  expireAfter: string
  deduplicationWindow: string
  deduplicateIds: string
  native: string
}> = {
  lineage: "millrace-lineage",
  partitions: "millrace-partitions",
  maxBytes: "millrace-max-bytes",
  expireAfter: "millrace-expire-after-ms",
  deduplicationWindow: "millrace-deduplication-window-ms",
  deduplicateIds: "millrace-deduplicate-ids",
  native: "millrace-native",
}

/** How one topic lies in JetStream: what its first stream tells. */
export interface TopicLayout extends TopicName {
  readonly lineage: Lineage
  readonly partitionCount: number
  /** Millrace made it; otherwise it is somebody's stream, read and written as one partition. */
  readonly own: boolean
  /** Of partition 0. */
  readonly config: StreamConfig
  readonly createdMicros: bigint
}

/** A partition and the stream that it is. */
export interface PartitionInfo {
  readonly layout: TopicLayout
  /** The JetStream stream's name. */
  readonly streamName: string
  readonly info: StreamInfo
}

/** Whether the partition's stream lies on several servers, one of which may be behind the others. */
export function isReplicated({ info }: PartitionInfo): boolean {
  return (info.config.num_replicas ?? 1) > 1
}

/** Finds topics and their partitions. What was found is kept for partitions whose names carry the topic's lineage, and for nothing else. */
export class TopicLayouts {
  readonly #connection: Connection
  readonly #known = new Map<string, TopicLayout>()

  constructor(connection: Connection) {
    this.#connection = connection
  }

  /** @throws NotFoundError */
  async find(name: TopicName): Promise<TopicLayout> {
    return (await this.first(name)).layout
  }

  /** The topic and its partition 0. @throws NotFoundError */
  async first(name: TopicName): Promise<PartitionInfo> {
    const { stream, topic } = name
    const streamName = firstStreamName(name)
    const info = await this.info(streamName, { stream, topic })
    const layout = layoutOf({ stream, topic }, info)
    this.#remember(layout)
    return { layout, streamName, info }
  }

  /** @throws NotFoundError when the topic is not there, or has no such partition */
  async partition(at: TopicPartition): Promise<PartitionInfo> {
    if (at.partition === 0) return this.first(at)
    const known = this.#known.get(key(at))
    if (known !== undefined && at.partition < known.partitionCount) {
      try {
        return await this.#later(known, at.partition)
      } catch (error) {
        // It was deleted, perhaps made anew: its first partition tells.
        if (!(error instanceof NotFoundError)) throw error
        this.#known.delete(key(at))
      }
    }
    const { layout } = await this.first(at)
    checkPartition(layout, at.partition)
    return this.#later(layout, at.partition)
  }

  /** @throws NotFoundError that names the topic */
  async info(streamName: string, name: TopicName): Promise<StreamInfo> {
    // A name that no stream can have is not sent: it would be another subject.
    if (/[\s.*>\\/]/.test(streamName) || streamName === "") throw notFound(name)
    try {
      return await this.#connection.api<StreamInfo>(`STREAM.INFO.${streamName}`, undefined, { idempotent: true })
    } catch (error) {
      if (error instanceof NotFoundError) throw notFound(name, error)
      throw error
    }
  }

  /** After a change that this session made. */
  forget(name: TopicName): void {
    this.#known.delete(key(name))
  }

  async #later(layout: TopicLayout, partition: number): Promise<PartitionInfo> {
    const name = streamName({ ...layout, partition })
    return { layout, streamName: name, info: await this.info(name, layout) }
  }

  #remember(layout: TopicLayout): void {
    const oldest = this.#known.keys().next().value
    if (this.#known.size >= mostKnown && oldest !== undefined) this.#known.delete(oldest)
    this.#known.set(key(layout), layout)
  }
}

/** Topics whose layout is kept at most. */
const mostKnown = 10_000

/** @throws NotFoundError with the partition, and with those that there are */
export function checkPartition(layout: TopicLayout, partition: number): void {
  if (Number.isInteger(partition) && partition >= 0 && partition < layout.partitionCount) return
  const { stream, topic, partitionCount } = layout
  throw new NotFoundError(
    `partition ${partition} of topic ${described(layout)} is out of range: the topic has ${partitionCount} partition${partitionCount === 1 ? " (0)" : `s (0 to ${partitionCount - 1})`}`,
    { context: { stream, topic, partition } },
  )
}

/** The JetStream stream of a partition of a topic that was found. */
export function partitionStream(layout: TopicLayout, partition: number): string {
  return partition === 0 ? layout.config.name : streamName({ ...layout, partition })
}

/**
 * The subject that records of a partition are published to. A stream of somebody else has one when it listens to exactly one subject
 * without a wildcard.
 */
export function partitionSubject(layout: TopicLayout, partition: number): string | undefined {
  if (layout.own) return subjectOf({ ...layout, partition })
  const [subject, more] = layout.config.subjects ?? []
  return subject === undefined || more !== undefined || /(^|\.)[*>]($|\.)/.test(subject) ? undefined : subject
}

/** What a topic's first stream tells. */
export function layoutOf(name: TopicName, info: StreamInfo): TopicLayout {
  const { config } = info
  const metadata = config.metadata ?? {}
  const lineage = metadata[metadataKeys.lineage]
  const count = Number(metadata[metadataKeys.partitions])
  const createdMicros = microsOf(info.created)
  const place = config.subjects?.length === 1 ? parseSubject(config.subjects[0] ?? "") : undefined
  const own =
    place !== undefined && place.stream === name.stream && place.topic === name.topic && place.lineage === lineage
  if (own && Number.isSafeInteger(count) && count >= 1 && lineage !== undefined) {
    return { ...name, lineage, partitionCount: count, own: true, config, createdMicros }
  }
  if (name.stream !== "" && isReservedName(config.name)) {
    throw new MillraceError(
      "protocol",
      `the JetStream stream ${JSON.stringify(config.name)} has the name of topic ${described(name)}, but not its metadata`,
      { outcome: "rejected" },
    )
  }
  return { ...name, lineage: info.created, partitionCount: 1, own: false, config, createdMicros }
}

/** The topic in words: `"stream/topic"`. */
export function described({ stream, topic }: TopicName): string {
  return JSON.stringify(stream === "" ? topic : `${stream}/${topic}`)
}

/** The error for a topic that is not there. */
export function notFound({ stream, topic }: TopicName, cause?: unknown): NotFoundError {
  return new NotFoundError(`topic ${described({ stream, topic })} does not exist`, {
    context: { stream, topic },
    ...(cause === undefined ? {} : { cause }),
  })
}

function key({ stream, topic }: TopicName): string {
  return `${stream}\n${topic}`
}
