/** Whether positions belong to the topics of now. */
import {
  HistoryChangedError,
  type Lineage,
  type MillraceError,
  NotFoundError,
  type TopicPartition,
} from "@millrace/contract"
import { askNow, type Cluster, type TopicMetadata } from "../cluster/cluster.ts"
import { asMillraceError, placeText } from "../fetch/slot-lookup.ts"
import { kafkaTopic } from "../names.ts"

/** A partition that is there, with the name and the id of its topic in Kafka. */
export interface KnownPlace {
  readonly topic: string
  readonly topicId: string
}

/** One call's view of the topics it speaks of: each is asked for once. */
export class TopicCheck {
  readonly #cluster: Cluster
  readonly #asked = new Map<string, Promise<TopicMetadata>>()

  constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  /** What is known of a topic may be old: it is asked for anew. */
  refresh(place: TopicPartition): void {
    const topic = kafkaTopic(place)
    const asked = this.#cluster.topic(topic, { maxAgeMs: askNow })
    // Whoever looks hears of the failure; when nobody does, it does not matter.
    asked.catch(() => {})
    this.#asked.set(topic, asked)
  }

  /** Never rejects: NotFoundError for a partition that is not there, HistoryChangedError for one that has another history. */
  async look(place: TopicPartition, lineage?: Lineage): Promise<KnownPlace | MillraceError> {
    try {
      const topic = kafkaTopic(place)
      let metadata = await this.#topic(topic)
      if (!fits(metadata, place, lineage)) {
        this.refresh(place)
        metadata = await this.#topic(topic)
      }
      if (metadata.partitions[place.partition] === undefined) throw missing(place, metadata.partitions.length)
      if (lineage !== undefined && metadata.topicId !== lineage) throw historyChanged(place, lineage, metadata.topicId)
      return { topic, topicId: metadata.topicId }
    } catch (error) {
      return asMillraceError(error)
    }
  }

  #topic(topic: string): Promise<TopicMetadata> {
    let asked = this.#asked.get(topic)
    if (asked === undefined) {
      asked = this.#cluster.topic(topic)
      this.#asked.set(topic, asked)
    }
    return asked
  }
}

function fits(metadata: TopicMetadata, place: TopicPartition, lineage: Lineage | undefined): boolean {
  return place.partition < metadata.partitions.length && (lineage === undefined || metadata.topicId === lineage)
}

function missing(place: TopicPartition, count: number): NotFoundError {
  const { stream, topic, partition } = place
  return new NotFoundError(
    `${placeText(place)} does not exist: the topic has ${count === 1 ? "1 partition (0)" : `${count} partitions (0 to ${count - 1})`}`,
    { context: { stream, topic, partition } },
  )
}

function historyChanged(place: TopicPartition, lineage: Lineage, present: string): HistoryChangedError {
  const { stream, topic, partition } = place
  return new HistoryChangedError(
    `${placeText(place)}: the topic was recreated: the offset belongs to the topic with id ${lineage}, the present one has ${present}`,
    { context: { stream, topic, partition, lineage, present } },
  )
}
