/** Topics as the newest metadata has them. Pure: answers and times go in. */
import type { MetadataResponseTopic } from "../protocol/messages.generated.ts"
import type { PartitionMetadata, TopicMetadata } from "./cluster.ts"

interface Row {
  topic: TopicMetadata
  atMs: number
  stale: boolean
}

export class TopicTable {
  readonly #maxAgeMs: number
  readonly #rows = new Map<string, Row>()

  constructor(maxAgeMs: number) {
    this.#maxAgeMs = maxAgeMs
  }

  /** The topic, unless it is unknown, invalidated or too old. */
  fresh(name: string, nowMs: number, maxAgeMs: number = this.#maxAgeMs): TopicMetadata | undefined {
    const row = this.#rows.get(name)
    return row === undefined || row.stale || nowMs - row.atMs > maxAgeMs ? undefined : row.topic
  }

  /** Whether it is known and was invalidated since. */
  isStale(name: string): boolean {
    return this.#rows.get(name)?.stale === true
  }

  /** The topic, unless it is unknown or invalidated, of whatever age. */
  usable(name: string): TopicMetadata | undefined {
    const row = this.#rows.get(name)
    return row === undefined || row.stale ? undefined : row.topic
  }

  /** The names that are known. */
  names(): string[] {
    return [...this.#rows.keys()]
  }

  invalidate(name: string): void {
    const row = this.#rows.get(name)
    if (row !== undefined) row.stale = true
  }

  forget(name: string): void {
    this.#rows.delete(name)
  }

  /**
   * Takes what a broker says. Of a topic that is the same as before, a partition never goes back to an older leader epoch: the broker
   * that answered is behind (KIP-320).
   * @returns Whether anything is other than before, and the topic as it is known now.
   */
  accept(
    answer: MetadataResponseTopic & { readonly name: string },
    nowMs: number,
  ): { changed: boolean; topic: TopicMetadata } {
    const before = this.#rows.get(answer.name)?.topic
    const same = before !== undefined && before.topicId === answer.topicId ? before : undefined
    let changed = same === undefined || same.partitions.length !== answer.partitions.length
    const partitions: PartitionMetadata[] = []
    const told = [...answer.partitions].sort((one, other) => one.partitionIndex - other.partitionIndex)
    for (const { partitionIndex, leaderId, leaderEpoch } of told) {
      const known = same?.partitions[partitionIndex]
      const older = known !== undefined && leaderEpoch >= 0 && leaderEpoch < known.leaderEpoch
      const now = older ? known : { partition: partitionIndex, leader: leaderId, leaderEpoch }
      if (known === undefined || known.leader !== now.leader || known.leaderEpoch !== now.leaderEpoch) changed = true
      partitions.push(now)
    }
    const topic = { name: answer.name, topicId: answer.topicId, partitions, internal: answer.isInternal }
    this.#rows.set(answer.name, { topic, atMs: nowMs, stale: false })
    return { changed, topic }
  }
}
