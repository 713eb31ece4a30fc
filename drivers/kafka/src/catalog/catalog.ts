import {
  AlreadyExistsError,
  type Catalog,
  ClosedError,
  InvalidError,
  MillraceError,
  type StreamDescription,
  type TopicDescription,
  type TopicName,
  type TopicPartition,
  type TopicSpec,
  type Watermarks,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { watermarks } from "../append/places.ts"
import { askNow, type Cluster, type TopicMetadata } from "../cluster/cluster.ts"
import { kafkaTopic, topicNameOf } from "../names.ts"
import type { Pauses } from "../pauses.ts"
import { allChanges, behindChange } from "./after-change.ts"
import { topicConfigs } from "./config-lookup.ts"
import { deleteRecords, wholePartition } from "./record-deletion.ts"
import { createPartitions, createTopic, deleteTopic, setConfig } from "./topic-admin.ts"
import {
  configNames,
  factOf,
  fromConfig,
  nativeSettings,
  perPartition,
  type TopicConfig,
  toConfig,
} from "./topic-config.ts"
import type { TopicFacts } from "./topic-facts.ts"
import { untilGone, untilLed } from "./visibility.ts"

export interface CatalogParts {
  readonly cluster: Cluster
  readonly clock: Clock
  readonly pauses: Pauses
  readonly facts: TopicFacts
}

/** Streams are prefixes of topic names: each exists always, and holds the topics that begin with it. */
export class KafkaCatalog implements Catalog {
  readonly #parts: CatalogParts
  #closed = false

  constructor(parts: CatalogParts) {
    this.#parts = parts
  }

  /** @throws AlreadyExistsError always: a prefix is there before anybody names it */
  createStream(stream: string): Promise<void> {
    if (this.#closed) return Promise.reject(new ClosedError("the session is closed"))
    return Promise.reject(
      new AlreadyExistsError(`stream ${JSON.stringify(stream)} exists: on Kafka a stream is a prefix of topic names`, {
        context: { stream },
      }),
    )
  }

  /** Settles when the leader of every partition answers, so that the first record can follow at once. */
  async createTopic(name: TopicName, spec: TopicSpec): Promise<TopicDescription> {
    const kafka = kafkaTopic(name)
    const native = nativeSettings(spec)
    const { partitions } = spec
    const { replicationFactor } = native
    const topicId = await createTopic(this.#parts, name, {
      kafka,
      partitions,
      replicationFactor,
      config: toConfig(spec, native),
    })
    return behindChange(async () => this.#described(name, await untilLed(this.#parts, kafka, { partitions, topicId })))
  }

  async describeStream(stream: string): Promise<StreamDescription> {
    return { stream, topics: (await this.#topicsOf(stream)).length }
  }

  async describeTopic(name: TopicName): Promise<TopicDescription> {
    const { cluster } = this.#parts
    const kafka = kafkaTopic(name)
    return this.#described(name, await cluster.topic(kafka, { maxAgeMs: askNow }))
  }

  /** The streams that some topic belongs to. */
  async listStreams(): Promise<StreamDescription[]> {
    const counts = new Map<string, number>()
    for (const { name, internal } of await this.#parts.cluster.topics()) {
      if (internal) continue
      const { stream } = topicNameOf(name)
      // Topics without a prefix of ours are in no stream.
      if (stream === "") continue
      counts.set(stream, (counts.get(stream) ?? 0) + 1)
    }
    return [...counts].map(([stream, topics]) => ({ stream, topics }))
  }

  async listTopics(stream: string): Promise<TopicDescription[]> {
    const topics = await this.#topicsOf(stream)
    const configs = await topicConfigs(
      this.#parts.cluster,
      topics.map(({ name }) => name),
    )
    const descriptions: TopicDescription[] = []
    for (const [index, topic] of topics.entries()) {
      const config = configs[index] as TopicConfig | MillraceError
      if (config instanceof MillraceError) {
        if (config.kind === "not-found") continue
        throw config
      }
      descriptions.push(this.#describe(topicNameOf(topic.name), topic, config))
    }
    return descriptions
  }

  /** A size limit stays what it is for the topic as a whole: the partitions' shares become smaller. */
  async addPartitions(name: TopicName, count: number): Promise<TopicDescription> {
    const kafka = kafkaTopic(name)
    const before = await this.describeTopic(name)
    const partitions = before.partitions.length + count
    await createPartitions(this.#parts, kafka, partitions)
    return behindChange(async () => {
      if (before.maxBytes !== undefined) {
        const value = perPartition(before.maxBytes, partitions)
        await setConfig(this.#parts, kafka, { name: configNames.retentionBytes, value })
      }
      return this.#described(name, await untilLed(this.#parts, kafka, { partitions, topicId: before.lineage }))
    })
  }

  /** An offset below the first, or behind the end, means that one. */
  async trim(place: TopicPartition, before: bigint): Promise<Watermarks> {
    const marks = await this.#watermarks(place)
    const { first, end } = marks
    const offset = before > end ? end : before
    if (offset <= first) return marks
    await deleteRecords(this.#parts, kafkaTopic(place), { partition: place.partition, offset })
    return behindChange(() => this.#watermarks(place))
  }

  async purgeTopic(name: TopicName): Promise<void> {
    const { cluster } = this.#parts
    const kafka = kafkaTopic(name)
    const { partitions } = await cluster.topic(kafka, { maxAgeMs: askNow })
    await allChanges(
      partitions.map(({ partition }) => deleteRecords(this.#parts, kafka, { partition, offset: wholePartition })),
    )
  }

  async deleteTopic(name: TopicName): Promise<void> {
    const { cluster } = this.#parts
    const kafka = kafkaTopic(name)
    await this.#delete(await cluster.topic(kafka, { maxAgeMs: askNow }))
  }

  /** @throws InvalidError for the stream "", which is every topic without a prefix, whoever made it */
  async deleteStream(stream: string): Promise<void> {
    if (stream === "") {
      throw new InvalidError('the stream "" cannot be deleted: it is every topic of the cluster that has no prefix')
    }
    const topics = await this.#topicsOf(stream)
    await allChanges(topics.map((topic) => this.#delete(topic)))
  }

  /** Requests are refused by the cluster, which is closed too. */
  close(): void {
    this.#closed = true
  }

  async #delete({ name, topicId }: TopicMetadata): Promise<void> {
    await deleteTopic(this.#parts, { kafka: name, topicId })
    await behindChange(() => untilGone(this.#parts, name, topicId))
    this.#parts.facts.forget(name)
  }

  async #topicsOf(stream: string): Promise<TopicMetadata[]> {
    const topics = await this.#parts.cluster.topics()
    return topics.filter(({ name, internal }) => !internal && topicNameOf(name).stream === stream)
  }

  async #described(name: TopicName, topic: TopicMetadata): Promise<TopicDescription> {
    const [config] = await topicConfigs(this.#parts.cluster, [topic.name])
    if (config === undefined || config instanceof MillraceError) throw config
    return this.#describe(name, topic, config)
  }

  #describe({ stream, topic: name }: TopicName, topic: TopicMetadata, config: TopicConfig): TopicDescription {
    const racks = new Map(this.#parts.cluster.nodes.map(({ id, rack }) => [id, rack]))
    this.#parts.facts.learn(topic.name, factOf(config))
    return {
      stream,
      topic: name,
      ...fromConfig(config, topic.partitions.length),
      lineage: topic.topicId,
      partitions: topic.partitions.map(({ partition, leader }) => {
        const rack = racks.get(leader)
        return {
          partition,
          ...(leader < 0 ? {} : { leader: String(leader) }),
          ...(rack === undefined ? {} : { rack }),
        }
      }),
    }
  }

  async #watermarks(place: TopicPartition): Promise<Watermarks> {
    const [marks] = await watermarks(this.#parts, [place])
    if (marks === undefined || marks instanceof MillraceError) throw marks
    return marks
  }
}
