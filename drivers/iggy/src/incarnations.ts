/**
 * Keeps batches that were made for a deleted topic from landing in one of the same name. The server knows no such condition, so the
 * topic's time of creation is asked for before an append, at most once in `freshMs`: a batch that is sent within that time after another
 * client has recreated the topic is stored in the new one.
 */
import { type Lineage, type MillraceError, NotFoundError, type TopicName } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { getTopic } from "./codec/catalog-commands.ts"
import { withOutcome } from "./outcome.ts"
import type { Requests } from "./requests.ts"
import { incarnationOf, keyOf, missingTopic, nameOf } from "./topic-lookup.ts"

/** How long an answer about a topic is believed. */
const freshMs = 250

/** Topics that nobody appended to for a while are forgotten when there are more than this. */
const mostTopics = 10_000

interface Known {
  /** The topic's creation in µs, as text. */
  readonly incarnation: string
  readonly askedMs: number
}

/** An append that waits for the topic's creation, as text, or for why it cannot be told. */
type Turn = (answer: string | MillraceError) => void

export class Incarnations {
  readonly #requests: Requests
  readonly #clock: Clock
  readonly #known = new Map<string, Known>()
  /** Appends that wait for an answer, in the order of their calls. */
  readonly #waiting = new Map<string, Turn[]>()
  #changes = 0

  constructor(requests: Requests, clock: Clock) {
    this.#requests = requests
    this.#clock = clock
  }

  /**
   * Sends when the topic is still the one of the lineage, in the order of the calls for each topic.
   * @throws NotFoundError when it is gone or was recreated; nothing was sent then
   */
  guard<T>(name: TopicName, lineage: Lineage, send: () => Promise<T>): Promise<T> {
    const key = keyOf(name)
    const turns = this.#waiting.get(key)
    const known = turns === undefined ? this.#fresh(key) : undefined
    if (known !== undefined) return checked(name, { lineage, incarnation: known }, send)
    return new Promise((resolve, reject) => {
      const turn: Turn = (answer) => {
        if (typeof answer !== "string") reject(answer)
        else checked(name, { lineage, incarnation: answer }, send).then(resolve, reject)
      }
      if (turns !== undefined) turns.push(turn)
      else this.#ask(name, turn)
    })
  }

  /** The topic may be another now. An answer that is under way is used, but not remembered. */
  forget(name: TopicName): void {
    this.#changes++
    this.#known.delete(keyOf(name))
  }

  forgetAll(): void {
    this.#changes++
    this.#known.clear()
  }

  #fresh(key: string): string | undefined {
    const known = this.#known.get(key)
    return known !== undefined && this.#clock.monotonicMs() - known.askedMs < freshMs ? known.incarnation : undefined
  }

  #ask(name: TopicName, first: Turn): void {
    const key = keyOf(name)
    const turns = [first]
    this.#waiting.set(key, turns)
    const tell = (answer: string | MillraceError): void => {
      this.#waiting.delete(key)
      for (const turn of turns) turn(answer)
    }
    this.#incarnation(name, key).then(tell, (error: unknown) => tell(nothingSent(error)))
  }

  /** The age of an answer is counted from its question, so it is never believed for longer than `freshMs`. */
  async #incarnation({ stream, topic }: TopicName, key: string): Promise<string | MillraceError> {
    const askedMs = this.#clock.monotonicMs()
    const changes = this.#changes
    try {
      const found = await this.#requests.request(getTopic, { stream, topic })
      if (found === undefined) return await missingTopic(this.#requests, { stream, topic })
      const incarnation = String(found.createdMicros)
      if (this.#known.size >= mostTopics) this.#known.clear()
      if (changes === this.#changes) this.#known.set(key, { incarnation, askedMs })
      return incarnation
    } catch (error) {
      return nothingSent(error)
    }
  }
}

function checked<T>(
  name: TopicName,
  { lineage, incarnation }: { readonly lineage: Lineage; readonly incarnation: string },
  send: () => Promise<T>,
): Promise<T> {
  if (incarnation === incarnationOf(lineage)) return send()
  const { stream, topic } = name
  return Promise.reject(
    new NotFoundError(`topic ${nameOf(name)} was recreated since the batch was made; nothing was stored`, {
      context: { stream, topic },
    }),
  )
}

/** Whatever became of the question, the append itself was not sent. */
function nothingSent(error: unknown): MillraceError {
  return withOutcome(error, "rejected")
}
