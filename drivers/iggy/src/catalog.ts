import {
  AlreadyExistsError,
  type Catalog,
  type StreamDescription,
  TimeoutError,
  type TopicDescription,
  type TopicName,
  type TopicPartition,
  type TopicSpec,
  unsupported,
  type Watermarks,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import {
  createPartitions,
  createStream,
  createTopic,
  deleteStream,
  deleteTopic,
  getStreams,
  purgeTopic,
} from "./codec/catalog-commands.ts"
import type { Partition, Stream } from "./codec/catalog-structures.ts"
import { createConsumerGroup, deleteConsumerGroup } from "./codec/group-commands.ts"
import type { Incarnations } from "./incarnations.ts"
import { iggyManifest } from "./manifest.ts"
import { withOutcome } from "./outcome.ts"
import { untilReady } from "./partition-readiness.ts"
import { Pauses } from "./pause.ts"
import { code, type Requests, refusedWith } from "./requests.ts"
import {
  endOf,
  historyGroup,
  lookUpStream,
  lookUpTopic,
  missingStream,
  missingTopic,
  nameOf,
  partitionOf,
  type TopicView,
} from "./topic-lookup.ts"
import { describeView, topicOptions } from "./topic-options.ts"

/** How long the partitions of a topic may take to carry out a purge. */
const purgeMs = 5000

/** Streams, topics and partitions, by name. */
export class IggyCatalog implements Catalog {
  readonly #requests: Requests
  readonly #incarnations: Incarnations
  readonly #clock: Clock

  constructor(tools: { readonly requests: Requests; readonly incarnations: Incarnations; readonly clock: Clock }) {
    this.#requests = tools.requests
    this.#incarnations = tools.incarnations
    this.#clock = tools.clock
  }

  async createStream(stream: string): Promise<void> {
    try {
      await this.#requests.request(createStream, { name: stream, options: [] })
    } catch (error) {
      if (!refusedWith(error, code.streamExists)) throw error
      throw new AlreadyExistsError(`stream ${JSON.stringify(stream)} exists already`, { context: { stream } })
    }
  }

  async createTopic({ stream, topic }: TopicName, spec: TopicSpec): Promise<TopicDescription> {
    const request = {
      stream,
      name: topic,
      partitionsCount: spec.partitions,
      options: topicOptions(spec, this.#requests.version),
    }
    try {
      await this.#requests.request(createTopic, request)
      this.#incarnations.forget({ stream, topic })
    } catch (error) {
      if (refusedWith(error, code.streamNotFound)) throw missingStream(stream)
      if (!refusedWith(error, code.topicExists)) throw error
      throw new AlreadyExistsError(`topic ${nameOf({ stream, topic })} exists already`, { context: { stream, topic } })
    }
    return this.#made({ stream, topic }, spec.partitions)
  }

  async describeStream(stream: string): Promise<StreamDescription> {
    return describe(await lookUpStream(this.#requests, stream))
  }

  async describeTopic(name: TopicName): Promise<TopicDescription> {
    return describeView(await lookUpTopic(this.#requests, name))
  }

  async listStreams(): Promise<StreamDescription[]> {
    return (await this.#requests.request(getStreams, undefined)).map(describe)
  }

  /** Topics that are deleted while they are listed are left out. */
  async listTopics(stream: string): Promise<TopicDescription[]> {
    const { topics } = await lookUpStream(this.#requests, stream)
    const looks = await Promise.allSettled(
      topics.map(({ name }) => lookUpTopic(this.#requests, { stream, topic: name })),
    )
    const views: TopicView[] = []
    for (const look of looks) {
      if (look.status === "fulfilled") views.push(look.value)
      else if (look.reason.kind !== "not-found") throw look.reason
    }
    return views.map(describeView)
  }

  async addPartitions({ stream, topic }: TopicName, count: number): Promise<TopicDescription> {
    await this.#onTopic({ stream, topic }, () => this.#requests.request(createPartitions, { stream, topic, count }))
    return this.#made({ stream, topic }, count)
  }

  trim(_partition: TopicPartition, _before: bigint): Promise<Watermarks> {
    return Promise.reject(unsupported(iggyManifest.backend, "trim", iggyManifest.catalog.trim))
  }

  /**
   * The new history's mark goes to the server right before the purge, without waiting between: whoever reads in that instant may still see
   * old records under the new lineage, but never new ones under the old. A process that dies between leaves a new history of the old records.
   */
  async purgeTopic({ stream, topic }: TopicName): Promise<void> {
    const before = await lookUpTopic(this.#requests, { stream, topic })
    await this.#onTopic({ stream, topic }, async () => {
      const steps = [
        this.#forgetHistory({ stream, topic }),
        this.#markHistory({ stream, topic }),
        this.#requests.request(purgeTopic, { stream, topic }),
      ]
      const ends = await Promise.allSettled(steps)
      const failures = ends.flatMap((end) => (end.status === "rejected" ? [end.reason] : []))
      if (failures.length === 0) return
      throw failures.length === steps.length ? failures.at(-1) : withOutcome(failures[0], "unknown")
    })
    try {
      await this.#untilPurged(before)
    } catch (error) {
      throw withOutcome(error, "unknown")
    }
  }

  async deleteTopic({ stream, topic }: TopicName): Promise<void> {
    try {
      await this.#onTopic({ stream, topic }, () => this.#requests.request(deleteTopic, { stream, topic }))
    } finally {
      this.#incarnations.forget({ stream, topic })
    }
  }

  async deleteStream(stream: string): Promise<void> {
    try {
      await this.#requests.request(deleteStream, { stream })
    } catch (error) {
      throw refusedWith(error, code.streamNotFound) ? missingStream(stream) : error
    } finally {
      this.#incarnations.forgetAll()
    }
  }

  async #forgetHistory({ stream, topic }: TopicName): Promise<void> {
    try {
      await this.#requests.request(deleteConsumerGroup, { stream, topic, group: historyGroup })
    } catch (error) {
      if (!refusedWith(error, code.groupNotFound)) throw error
    }
  }

  /** Another that marks at the same time does the same: any new id is as good. */
  async #markHistory({ stream, topic }: TopicName): Promise<void> {
    try {
      await this.#requests.request(createConsumerGroup, { stream, topic, name: historyGroup })
    } catch (error) {
      if (!refusedWith(error, code.groupExists)) throw error
    }
  }

  /** Describes a topic once its last partitions, which were just made, take what is sent to them. */
  async #made(name: TopicName, count: number): Promise<TopicDescription> {
    try {
      const description = await this.describeTopic(name)
      const partitions = description.partitions.map(({ partition }) => partition).slice(-count)
      if (count > 0) await untilReady({ requests: this.#requests, clock: this.#clock }, name, partitions)
      return description
    } catch (error) {
      throw withOutcome(error, "unknown")
    }
  }

  /** The server answers when the purge is decided; each partition carries it out by itself. */
  async #untilPurged(before: TopicView): Promise<void> {
    const { stream, topic } = { stream: before.stream, topic: before.topic.name }
    const deadlineMs = this.#clock.monotonicMs() + purgeMs
    const pauses = new Pauses(this.#clock)
    for (;;) {
      const { topic: now } = await lookUpTopic(this.#requests, { stream, topic })
      const another = now.createdMicros !== before.topic.createdMicros
      if (another || before.topic.partitions.every((old) => isPurged(old, partitionOf({ topic: now }, old.id)))) return
      const leftMs = deadlineMs - this.#clock.monotonicMs()
      if (leftMs <= 0) {
        throw new TimeoutError(
          `the purge of topic ${nameOf({ stream, topic })} was decided, but not all partitions were empty after ${purgeMs} ms`,
          { context: { stream, topic } },
        )
      }
      await pauses.pause(leftMs)
    }
  }

  async #onTopic(name: TopicName, act: () => Promise<unknown>): Promise<void> {
    try {
      await act()
    } catch (error) {
      if (!refusedWith(error, code.streamNotFound, code.topicNotFound)) throw error
      throw await missingTopic(this.#requests, name)
    }
  }
}

function describe({ name, topicsCount, createdMicros }: Stream): StreamDescription {
  return { stream: name, topics: topicsCount, createdMicros }
}

/** Empty, or filled anew. */
function isPurged(old: Partition, now: Partition | undefined): boolean {
  return now === undefined || old.messagesCount === 0n || now.messagesCount === 0n || endOf(now) < endOf(old)
}
