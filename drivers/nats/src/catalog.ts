import {
  AlreadyExistsError,
  type Catalog,
  InvalidError,
  MillraceError,
  NotFoundError,
  OffsetOutOfRangeError,
  type StreamDescription,
  type TopicDescription,
  type TopicName,
  type TopicPartition,
  type TopicSpec,
  type Watermarks,
} from "@millrace/contract"
import type { Connection } from "./connection.ts"
import {
  checkBareName,
  firstPartitions,
  firstPartitionsOf,
  firstStreamName,
  isReservedName,
  parseSubject,
  streamName,
  subjectOf,
  topicFilter,
} from "./names.ts"
import { watermarksOf } from "./places.ts"
import { microsOf, type StreamConfig, type StreamInfo } from "./stream-info.ts"
import { StreamLists } from "./stream-lists.ts"
import {
  checkNative,
  descriptionOf,
  metadataOf,
  partitionBytes,
  settingsOf,
  specOf,
  streamNamesOf,
} from "./topic-config.ts"
import {
  described,
  layoutOf,
  metadataKeys,
  notFound,
  partitionStream,
  type TopicLayout,
  type TopicLayouts,
} from "./topic-layout.ts"

/** Streams that are created, changed or deleted at once for one topic. */
const atOnce = 8

/**
 * A topic that nobody finished is left behind by a process that died while it made or deleted one. It is removed with the next change
 * of the topic, once it is older than any creation takes, by the server's clock.
 */
const leftoverAgeMicros = 600_000_000n

/**
 * Topics as JetStream streams. Partition 0 is made last and deleted first: a topic is there, whole, exactly while its partition 0 is.
 */
export class NatsCatalog implements Catalog {
  readonly #connection: Connection
  readonly #layouts: TopicLayouts
  readonly #lists: StreamLists
  readonly #forgetOffsets: (topic: TopicName) => Promise<void>

  /** @param parts `forgetOffsets`: called with a topic that is gone. */
  constructor(
    connection: Connection,
    layouts: TopicLayouts,
    parts: { readonly forgetOffsets: (topic: TopicName) => Promise<void> },
  ) {
    this.#connection = connection
    this.#layouts = layouts
    this.#forgetOffsets = parts.forgetOffsets
    this.#lists = new StreamLists(connection)
  }

  /** Streams are prefixes: every one exists. @throws AlreadyExistsError */
  async createStream(stream: string): Promise<void> {
    this.#connection.check()
    throw new AlreadyExistsError(`stream ${JSON.stringify(stream)} exists: on NATS every stream does, as a prefix`, {
      context: { stream },
    })
  }

  async createTopic(name: TopicName, spec: TopicSpec): Promise<TopicDescription> {
    const { stream, topic } = name
    this.#connection.check()
    if (stream === "") this.#checkBare(topic)
    checkNative({ stream, topic }, spec.native)
    const lineage = this.#newLineage()
    const settings = settingsOf(spec, this.#features())
    const place = (partition: number): StreamConfig => ({
      ...settings,
      name: streamName({ stream, topic, partition, lineage }),
      subjects: [subjectOf({ stream, topic, partition, lineage })],
      metadata: { [metadataKeys.lineage]: lineage, ...(partition === 0 ? metadataOf(spec, lineage) : {}) },
    })
    const later = Array.from({ length: spec.partitions - 1 }, (_, index) => index + 1)
    if (later.length > 0) {
      // Found early, it saves the making of streams that are deleted again; the server decides at partition 0.
      if (await this.#exists({ stream, topic })) throw alreadyExists({ stream, topic })
      await this.#removeLeftovers({ stream, topic })
    }
    let info: StreamInfo
    try {
      await inGroups(later, (partition) => this.#create(place(partition)))
      info = await this.#create(place(0))
    } catch (error) {
      await this.#undo({ stream, topic }, lineage, later, error)
      if (error instanceof AlreadyExistsError) throw alreadyExists({ stream, topic }, error)
      throw error
    }
    this.#layouts.forget({ stream, topic })
    return this.#describe(layoutOf({ stream, topic }, info))
  }

  async describeStream(stream: string): Promise<StreamDescription> {
    return { stream, topics: (await this.#lists.names(firstPartitionsOf(stream))).length }
  }

  async describeTopic(name: TopicName): Promise<TopicDescription> {
    return this.#describe(await this.#layouts.find(name))
  }

  /** Streams that have topics. */
  async listStreams(): Promise<StreamDescription[]> {
    const topics = new Map<string, number>()
    for (const { config } of await this.#lists.infos(firstPartitions)) {
      const stream = parseSubject(config.subjects?.[0] ?? "")?.stream ?? ""
      if (stream !== "") topics.set(stream, (topics.get(stream) ?? 0) + 1)
    }
    return [...topics].map(([stream, count]) => ({ stream, topics: count }))
  }

  async listTopics(stream: string): Promise<TopicDescription[]> {
    const infos = stream === "" ? await this.#lists.infos() : await this.#lists.infos(firstPartitionsOf(stream))
    const layouts = infos.flatMap((info) => layoutIn(stream, info) ?? [])
    return inGroups(layouts, (layout) => this.#describe(layout))
  }

  /** Several calls at once for one topic may add fewer than the sum: the last to finish decides the count. */
  async addPartitions(name: TopicName, count: number): Promise<TopicDescription> {
    const { layout } = await this.#layouts.first(name)
    if (!layout.own) throw notOurs(layout, "partitions can be added")
    const total = layout.partitionCount + count
    const spec: TopicSpec = { ...specOf(layout), partitions: total }
    const settings = settingsOf(spec, this.#features())
    const { lineage } = layout
    const added = Array.from({ length: count }, (_, index) => layout.partitionCount + index)
    await inGroups(added, (partition) =>
      this.#create({
        ...settings,
        name: streamName({ ...layout, partition }),
        subjects: [subjectOf({ ...layout, partition })],
        metadata: { [metadataKeys.lineage]: lineage },
      }),
    )
    const grown = { [metadataKeys.partitions]: String(total) }
    const first = await this.#update(layout.config, { metadata: { ...layout.config.metadata, ...grown } })
    const { maxBytes } = spec
    if (maxBytes !== undefined) {
      await afterwards(`the partitions of topic ${described(layout)} are added`, () =>
        this.#shareBytes(layoutOf(layout, first), maxBytes),
      )
    }
    return this.describeTopic(name)
  }

  async trim(at: TopicPartition, before: bigint): Promise<Watermarks> {
    const found = await this.#layouts.partition(at)
    const marks = watermarksOf(at, found)
    if (before > marks.end) {
      const { stream, topic, partition } = at
      throw new OffsetOutOfRangeError(
        `topic ${described(at)}, partition ${partition} cannot be trimmed before ${before}: it ends at ${marks.end}`,
        { context: { stream, topic, partition, offset: before, first: marks.first, end: marks.end } },
      )
    }
    if (before <= marks.first) return marks
    // Sequence = offset + 1, and a purge keeps the sequence that it names.
    await this.#change(found.streamName, at, "PURGE", { seq: Number(before) + 1 })
    return watermarksOf(at, await this.#layouts.partition(at))
  }

  /** Removes every record; offsets go on counting. An id that was stored before still counts as a duplicate within the window. */
  async purgeTopic(name: TopicName): Promise<void> {
    const layout = await this.#layouts.find(name)
    const [first, ...later] = streamNamesOf(layout) as [string, ...string[]]
    await this.#change(first, layout, "PURGE", {})
    await afterwards(`partition 0 of topic ${described(layout)} is purged`, () =>
      inGroups(later, (stream) => this.#change(stream, layout, "PURGE", {})),
    )
  }

  async deleteTopic(name: TopicName): Promise<void> {
    const layout = await this.#layouts.find(name)
    const [first, ...later] = streamNamesOf(layout) as [string, ...string[]]
    await this.#change(first, layout, "DELETE")
    this.#layouts.forget(name)
    await afterwards(`topic ${described(layout)} is deleted`, async () => {
      await inGroups(later, (stream) => this.#deleteIfThere(stream))
      if (later.length > 0) await this.#removeLeftovers(layout)
      await this.#forgetOffsets({ stream: layout.stream, topic: layout.topic })
    })
  }

  /** @throws InvalidError for the stream "": topics without a stream do not belong together */
  async deleteStream(stream: string): Promise<void> {
    if (stream === "") {
      throw new InvalidError('the stream "" cannot be deleted: it is every topic that has no stream', {
        context: { stream },
      })
    }
    const infos = await this.#lists.infos(firstPartitionsOf(stream))
    for (const info of infos) {
      const layout = layoutIn(stream, info)
      if (layout === undefined) continue
      try {
        await this.deleteTopic(layout)
      } catch (error) {
        // Somebody else deleted it meanwhile: that is what was wanted.
        if (!(error instanceof NotFoundError)) throw error
      }
    }
  }

  #features(): { readonly atomicBatches: boolean; readonly fastIngest: boolean } {
    return { atomicBatches: this.#connection.isAtLeast(2, 12), fastIngest: this.#connection.isAtLeast(2, 14) }
  }

  #checkBare(topic: string): void {
    checkBareName(topic)
    if (isReservedName(topic)) {
      throw new InvalidError(
        `topic ${JSON.stringify(topic)} without a stream: names that begin with millrace_ or millrace= are the streams of other topics`,
        { context: { topic } },
      )
    }
  }

  /** 72 bits of chance in 14 characters. */
  #newLineage(): string {
    const { random } = this.#connection
    let value = 0n
    for (let draw = 0; draw < 3; draw++) value = (value << 32n) | BigInt(random.uint32())
    return (value & ((1n << 72n) - 1n)).toString(36).padStart(14, "0")
  }

  async #describe(layout: TopicLayout): Promise<TopicDescription> {
    const infos = new Map<number, StreamInfo>()
    // Leaders are worth a request each only where there are several servers.
    if (this.#connection.nc.info?.cluster !== undefined) {
      const partitions = Array.from({ length: layout.partitionCount }, (_, partition) => partition)
      await inGroups(partitions, async (partition) => {
        infos.set(partition, await this.#layouts.info(partitionStream(layout, partition), layout))
      })
    }
    return descriptionOf(layout, infos)
  }

  async #exists(name: TopicName): Promise<boolean> {
    try {
      await this.#layouts.info(firstStreamName(name), name)
      return true
    } catch (error) {
      if (error instanceof NotFoundError) return false
      throw error
    }
  }

  #create(config: StreamConfig): Promise<StreamInfo> {
    return this.#connection.api<StreamInfo>(`STREAM.CREATE.${config.name}`, config)
  }

  #update(config: StreamConfig, change: Partial<StreamConfig>): Promise<StreamInfo> {
    return this.#connection.api<StreamInfo>(`STREAM.UPDATE.${config.name}`, { ...config, ...change })
  }

  async #shareBytes(layout: TopicLayout, maxBytes: bigint): Promise<void> {
    const share = partitionBytes(maxBytes, layout.partitionCount)
    await inGroups(streamNamesOf(layout), async (name) => {
      const { config } = await this.#layouts.info(name, layout)
      if (config.max_bytes !== share) await this.#update(config, { max_bytes: share })
    })
  }

  async #change(stream: string, name: TopicName, verb: "PURGE" | "DELETE", body?: unknown): Promise<void> {
    try {
      await this.#connection.api(`STREAM.${verb}.${stream}`, body)
    } catch (error) {
      if (error instanceof NotFoundError) throw notFound(name, error)
      throw error
    }
  }

  async #deleteIfThere(stream: string): Promise<void> {
    try {
      await this.#connection.api(`STREAM.DELETE.${stream}`)
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error
    }
  }

  /** Takes back what was made of a topic whose creation failed. When the failure is in doubt, or this fails too, it is a leftover. */
  async #undo(name: TopicName, lineage: string, later: readonly number[], failure: unknown): Promise<void> {
    if (failure instanceof MillraceError && failure.outcome === "unknown") return
    try {
      await inGroups(later, (partition) => this.#deleteIfThere(streamName({ ...name, partition, lineage })))
    } catch (error) {
      if (!(error instanceof MillraceError)) throw error
    }
  }

  /** Removes streams of partitions whose topic is gone, or was never finished. */
  async #removeLeftovers(name: TopicName): Promise<void> {
    const infos = await this.#lists.infos(topicFilter(name))
    if (infos.length === 0) return
    const alive = await this.#layouts.find(name).then(
      ({ lineage }) => lineage,
      (error: unknown) => {
        if (error instanceof NotFoundError) return undefined
        throw error
      },
    )
    const dead = infos.filter(({ config, created, ts }) => {
      const place = parseSubject(config.subjects?.[0] ?? "")
      if (place === undefined || place.partition === 0 || place.lineage === alive) return false
      return ts !== undefined && microsOf(ts) - microsOf(created) > leftoverAgeMicros
    })
    await inGroups(dead, ({ config }) => this.#deleteIfThere(config.name))
  }
}

/** What a JetStream stream of a list is as a topic of `stream`; `undefined` for a later partition, or somebody's inner workings. */
function layoutIn(stream: string, info: StreamInfo): TopicLayout | undefined {
  const { name, subjects } = info.config
  const place = parseSubject(subjects?.[0] ?? "")
  if (stream === "") {
    // Buckets of the key-value and the object store are streams, too, but nobody's topics.
    if (/^(KV|OBJ)_/.test(name) || isReservedName(name)) return undefined
    return layoutOf({ stream: "", topic: name }, info)
  }
  if (place === undefined || place.partition !== 0 || firstStreamName(place) !== name) return undefined
  return layoutOf({ stream: place.stream, topic: place.topic }, info)
}

/** Runs `each` for every item, some at once, and answers in order; after a failure no other begins, and those under way are awaited. */
async function inGroups<T, R>(items: readonly T[], each: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  for (let start = 0; start < items.length; start += atOnce) {
    const outcomes = await Promise.allSettled(items.slice(start, start + atOnce).map(each))
    for (const outcome of outcomes) {
      if (outcome.status === "rejected") throw outcome.reason
      results.push(outcome.value)
    }
  }
  return results
}

/** What follows on a step that is done: its failure leaves the whole in doubt, whatever it says of itself. */
async function afterwards(done: string, work: () => Promise<unknown>): Promise<void> {
  try {
    await work()
  } catch (cause) {
    if (!(cause instanceof MillraceError)) throw cause
    const { kind, retryable, context } = cause
    const message = `${done}, but not all that belongs to it was done: ${cause.message}`
    throw new MillraceError(kind, message, { retryable, outcome: "unknown", context, cause })
  }
}

function alreadyExists({ stream, topic }: TopicName, cause?: unknown): AlreadyExistsError {
  return new AlreadyExistsError(`topic ${described({ stream, topic })} exists already`, {
    context: { stream, topic },
    ...(cause === undefined ? {} : { cause }),
  })
}

function notOurs(layout: TopicLayout, what: string): InvalidError {
  const { stream, topic } = layout
  return new InvalidError(
    `topic ${described(layout)} is a JetStream stream that Millrace did not make: it has one partition, and no ${what}`,
    { context: { stream, topic } },
  )
}
