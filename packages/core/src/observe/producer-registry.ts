import type { TopicName } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { ProducerStatistics } from "../producer/statistics.ts"
import type { ObservedProducer } from "./producer-report.ts"
import { newUlid } from "./ulid.ts"

/** The live producers of one client, oldest first, each with the id that it is reported under for its life. */
export class ProducerRegistry {
  /** Names the client in what it reports: a ULID. */
  readonly reporter: string
  readonly #clock: Clock
  readonly #random: Random
  readonly #live = new Set<LiveProducer>()
  #onChange: (() => void) | undefined

  constructor(clock: Clock, random: Random) {
    this.#clock = clock
    this.#random = random
    this.reporter = newUlid(clock, random)
  }

  /** How many producers are open. */
  get size(): number {
    return this.#live.size
  }

  /** Told after each producer that comes or goes. One listener: the reporter. */
  listen(onChange: () => void): void {
    this.#onChange = onChange
  }

  /**
   * A producer has been opened.
   * @param name Its topic.
   * @param statistics Asked whenever somebody wants to know.
   * @returns Call it when the producer has ended; a second call does nothing.
   */
  add(name: TopicName, statistics: () => ProducerStatistics): () => void {
    const producer: LiveProducer = { instanceId: newUlid(this.#clock, this.#random), name, statistics }
    this.#live.add(producer)
    this.#onChange?.()
    return () => {
      if (this.#live.delete(producer)) this.#onChange?.()
    }
  }

  /**
   * What the live producers have done; those that sent nothing yet have nothing to tell and are left out.
   * @param most Of the oldest.
   */
  observe(most: number = Number.POSITIVE_INFINITY): ObservedProducer[] {
    const observed: ObservedProducer[] = []
    let counted = 0
    for (const { instanceId, name, statistics } of this.#live) {
      if (counted >= most) break
      counted++
      const counts = statistics()
      if (counts.firstActivityMillis !== undefined) observed.push({ instanceId, name, statistics: counts })
    }
    return observed
  }
}

interface LiveProducer {
  readonly instanceId: string
  readonly name: TopicName
  readonly statistics: () => ProducerStatistics
}
