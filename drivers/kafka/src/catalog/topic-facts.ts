/** What of topics' configurations matters to appends, as far as it was told when the topics were described. */

export interface TopicFact {
  /** The largest batch (`max.message.bytes`). */
  readonly limitBytes: number | undefined
  /** Whether the broker puts its own time on records (`message.timestamp.type` is LogAppendTime). */
  readonly brokerTime: boolean
}

/** As many topics are remembered; the ones that were told of longest ago are forgotten. */
const mostTopics = 10_000

export class TopicFacts {
  readonly #facts = new Map<string, TopicFact>()

  /** @param kafka Kafka's name of the topic. */
  known(kafka: string): TopicFact | undefined {
    return this.#facts.get(kafka)
  }

  learn(kafka: string, fact: TopicFact): void {
    this.#facts.delete(kafka)
    this.#facts.set(kafka, fact)
    if (this.#facts.size <= mostTopics) return
    for (const oldest of this.#facts.keys()) {
      this.#facts.delete(oldest)
      break
    }
  }

  forget(kafka: string): void {
    this.#facts.delete(kafka)
  }
}
