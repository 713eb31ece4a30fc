import type { PartitionDescription, TopicDescription, TopicName, TopicSpec } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { PartitionLog } from "./partition-log.ts"

/** One history of one partition, also after its end, for those who compare what was promised with what is stored. */
export interface History {
  readonly stream: string
  readonly topic: string
  readonly partition: number
  readonly lineage: string
  readonly log: PartitionLog
  /** On the monotonic clock; the end is when it was purged or its topic deleted. */
  readonly beganMs: number
  endedMs: number | undefined
}

/** One incarnation of a topic. */
export class SimTopic {
  readonly incarnation: number
  readonly #archive: History[]
  readonly #clock: Clock
  #description: TopicDescription
  #histories: History[] = []
  #history = 0

  /** @param archive Where each history is written down when it begins. */
  constructor(
    name: TopicName,
    spec: TopicSpec,
    origin: { readonly incarnation: number; readonly archive: History[]; readonly clock: Clock },
  ) {
    this.incarnation = origin.incarnation
    this.#archive = origin.archive
    this.#clock = origin.clock
    const { partitions, ...rest } = spec
    this.#description = {
      stream: name.stream,
      topic: name.topic,
      ...rest,
      lineage: this.#lineage,
      partitions: [],
      createdMicros: origin.clock.nowMicros(),
    }
    this.grow(partitions)
  }

  get description(): TopicDescription {
    return this.#description
  }

  log(partition: number): PartitionLog | undefined {
    return this.#histories[partition]?.log
  }

  get logs(): readonly PartitionLog[] {
    return this.#histories.map(({ log }) => log)
  }

  /** Whether a description is of this incarnation, in any of its histories. */
  isDescribedBy({ lineage }: TopicDescription): boolean {
    return lineage.startsWith(`${this.incarnation}.`)
  }

  grow(count: number): void {
    const present = this.#histories.length
    for (let partition = present; partition < present + count; partition++) {
      this.#histories.push(this.#begin(partition, new PartitionLog()))
    }
    this.#redescribe()
  }

  /** Every partition begins again at 0; the producers are remembered. */
  purge(): void {
    const nowMs = this.#clock.monotonicMs()
    this.#history++
    this.#histories = this.#histories.map((old, partition) => {
      old.endedMs = nowMs
      const log = new PartitionLog()
      log.inherit(old.log)
      return this.#begin(partition, log)
    })
    this.#redescribe()
  }

  end(): void {
    const nowMs = this.#clock.monotonicMs()
    for (const history of this.#histories) history.endedMs = nowMs
  }

  get #lineage(): string {
    return `${this.incarnation}.${this.#history}`
  }

  #begin(partition: number, log: PartitionLog): History {
    const { stream, topic } = this.#description
    const beganMs = this.#clock.monotonicMs()
    const history: History = { stream, topic, partition, lineage: this.#lineage, log, beganMs, endedMs: undefined }
    this.#archive.push(history)
    return history
  }

  #redescribe(): void {
    const partitions: PartitionDescription[] = this.#histories.map((_, partition) => ({ partition }))
    this.#description = { ...this.#description, lineage: this.#lineage, partitions }
  }
}
