/**
 * Questions about topics, gathered: all that are asked for in one turn, or while a question is on its way, share one Metadata request.
 * A topic that is asked about since its metadata was in doubt, and whose answers say nothing new, is asked about ever more seldom.
 */
import { ClosedError, MillraceError } from "@millrace/contract"
import { backoffMs, type Clock, type Timer } from "@millrace/runtime"
import { errorCode, kafkaError, meansNoTopic } from "../errors.ts"
import { topicNameOf } from "../names.ts"
import type { MetadataResponse, MetadataResponseTopic } from "../protocol/messages.generated.ts"
import { noTopic, topicText } from "../topic-words.ts"
import type { TopicMetadata } from "./cluster.ts"
import type { TopicTable } from "./topic-table.ts"

/** The waits between questions whose answers say nothing new: the first, and the longest. ms */
const firstGapMs = 100
const longestGapMs = 2_000

/** Answers without news, and when the next question about the topic may go out. */
interface Pace {
  fruitless: number
  readyAtMs: number
}

interface Asker {
  readonly resolve: (topic: TopicMetadata) => void
  readonly reject: (error: unknown) => void
}

export interface MetadataFeedParts {
  readonly table: TopicTable
  readonly clock: Clock
  /** One Metadata request for these topics, its nodes taken note of. */
  readonly ask: (names: readonly string[]) => Promise<MetadataResponse>
}

export class MetadataFeed {
  readonly #parts: MetadataFeedParts
  readonly #askers = new Map<string, Asker[]>()
  readonly #pace = new Map<string, Pace>()
  #timer: Timer | undefined
  #scheduled = false
  #asking = false
  #closed = false

  constructor(parts: MetadataFeedParts) {
    this.#parts = parts
  }

  /** Asks, or joins those who wait for the same topic. @throws NotFoundError, PermissionError, ConnectionError, TimeoutError */
  topic(name: string): Promise<TopicMetadata> {
    if (this.#closed) return Promise.reject(closedError())
    return new Promise((resolve, reject) => {
      const asker = { resolve, reject }
      const askers = this.#askers.get(name)
      if (askers === undefined) this.#askers.set(name, [asker])
      else askers.push(asker)
      this.#schedule()
    })
  }

  close(): void {
    this.#closed = true
    this.#timer?.cancel()
    for (const name of [...this.#askers.keys()]) this.#reject(name, closedError())
  }

  #schedule(): void {
    if (this.#scheduled || this.#asking) return
    this.#scheduled = true
    queueMicrotask(() => {
      this.#scheduled = false
      this.#proceed()
    })
  }

  #proceed(): void {
    if (this.#closed || this.#asking || this.#askers.size === 0) return
    this.#timer?.cancel()
    this.#timer = undefined
    const nowMs = this.#parts.clock.monotonicMs()
    const due: string[] = []
    let waitMs = longestGapMs
    for (const name of this.#askers.keys()) {
      const readyAtMs = this.#pace.get(name)?.readyAtMs ?? 0
      if (readyAtMs <= nowMs) due.push(name)
      else waitMs = Math.min(waitMs, readyAtMs - nowMs)
    }
    if (due.length === 0) {
      this.#timer = this.#parts.clock.setTimer(waitMs, () => this.#proceed())
      return
    }
    this.#asking = true
    this.#parts.ask(due).then(
      (answer) => this.#answered(due, answer),
      (error: unknown) => this.#failed(due, error),
    )
  }

  #answered(names: readonly string[], answer: MetadataResponse): void {
    this.#asking = false
    const byName = new Map(answer.topics.map((topic) => [topic.name, topic]))
    for (const name of names) {
      const told = byName.get(name)
      const outcome = this.#take(name, told)
      if (outcome instanceof Error) this.#reject(name, outcome)
      else this.#resolve(name, outcome)
    }
    this.#proceed()
  }

  #failed(names: readonly string[], error: unknown): void {
    this.#asking = false
    for (const name of names) this.#reject(name, error)
    this.#proceed()
  }

  #take(name: string, told: MetadataResponseTopic | undefined): TopicMetadata | MillraceError {
    const { table, clock } = this.#parts
    const code = told?.errorCode ?? errorCode.unknownTopicOrPartition
    if (told === undefined || meansNoTopic(code)) {
      table.forget(name)
      this.#pace.delete(name)
      return noTopic(name)
    }
    const nowMs = clock.monotonicMs()
    if (code !== errorCode.none && code !== errorCode.leaderNotAvailable) {
      this.#slow(name, nowMs)
      return kafkaError(code, {
        what: `looking up ${topicText(name)}`,
        context: { ...topicNameOf(name) },
        readOnly: true,
      })
    }
    const doubted = table.isStale(name)
    const { changed, topic } = table.accept({ ...told, name }, nowMs)
    if (topic.partitions.some((entry, index) => entry.partition !== index)) {
      table.forget(name)
      return new MillraceError("protocol", `the metadata of ${topicText(name)} leaves partitions out`)
    }
    if (changed || !doubted) this.#pace.delete(name)
    else this.#slow(name, nowMs)
    return topic
  }

  #slow(name: string, nowMs: number): void {
    const fruitless = this.#pace.get(name)?.fruitless ?? 0
    this.#pace.set(name, {
      fruitless: fruitless + 1,
      readyAtMs: nowMs + backoffMs(fruitless, firstGapMs, longestGapMs),
    })
  }

  #resolve(name: string, topic: TopicMetadata): void {
    for (const asker of this.#taken(name)) asker.resolve(topic)
  }

  #reject(name: string, error: unknown): void {
    for (const asker of this.#taken(name)) asker.reject(error)
  }

  #taken(name: string): readonly Asker[] {
    const askers = this.#askers.get(name) ?? []
    this.#askers.delete(name)
    return askers
  }
}

function closedError(): ClosedError {
  return new ClosedError("the session is closed")
}
