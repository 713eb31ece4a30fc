/**
 * Topics that Millrace keeps for itself in the stream `millrace`: reports of producers, filters of groups. One partition each, made by
 * whoever first has something to write. Small state of the backend would serve as well, but not every backend has some, and every one
 * has topics.
 */
import {
  type AppendResult,
  type BatchStamp,
  batchId,
  Headers,
  MillraceError,
  type Session,
  type TopicDescription,
  type TopicName,
  type TopicSpec,
  type Watermarks,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { ensureTopic } from "./ensure-topic.ts"
import { CachedTopicDirectory } from "./topic-directory.ts"

/** The stream of Millrace's own topics. `client.streams()` leaves it out. */
export const ownStream = "millrace"

/** One of Millrace's own topics, by its name within `ownStream`. */
export function ownTopic(topic: string): TopicName {
  return Object.freeze({ stream: ownStream, topic })
}

/** What appends to one of Millrace's own topics need of a client, or of a session beside it. */
export interface OwnTopicParts {
  readonly session: Session
  readonly clock: Clock
  readonly random: Random
}

/** Appends records to one of Millrace's own topics, which is made where it is missing. */
export class OwnTopicWriter {
  readonly #parts: OwnTopicParts
  readonly #name: TopicName
  readonly #spec: TopicSpec
  #topic: TopicDescription | undefined

  constructor(parts: OwnTopicParts, name: TopicName, spec: TopicSpec) {
    this.#parts = parts
    this.#name = name
    this.#spec = spec
  }

  /** Appends one record once, without retries. After a failure the topic is looked up again: it may be another one. @throws what the backend says */
  async append(key: Uint8Array, payload: Uint8Array): Promise<AppendResult> {
    this.#topic ??= await this.#ensure()
    try {
      return await this.#append(this.#topic, { key, payload })
    } catch (error) {
      this.#topic = undefined
      throw error
    }
  }

  async #append(
    topic: TopicDescription,
    { key, payload }: { readonly key: Uint8Array; readonly payload: Uint8Array },
  ): Promise<AppendResult> {
    const { log, manifest } = this.#parts.session
    const writer = log.writer(topic, 0, { records: 1, bytes: manifest.limits.batchBytes })
    writer.tryAppend({ payload, key, headers: Headers.empty, id: undefined, timestampMicros: undefined })
    const sealed = writer.seal(this.#stamp())
    try {
      return await log.append(sealed, {})
    } finally {
      sealed.release()
    }
  }

  #ensure(): Promise<TopicDescription> {
    const { session, clock } = this.#parts
    const topics = new CachedTopicDirectory(session.catalog)
    return ensureTopic({ session, clock, topics }, this.#name, { stream: true, topic: this.#spec })
  }

  #stamp(): BatchStamp {
    const { clock, random } = this.#parts
    const timestampMicros = clock.nowMicros()
    const low = (BigInt(random.uint32() & 0x3ff) << 32n) | BigInt(random.uint32())
    const id = batchId(Number(timestampMicros / 1000n), random.uint32() & 0xfff, low)
    return { id, timestampMicros, resend: false }
  }
}

/** What the partition of one of Millrace's own topics holds. @throws NotFoundError when nobody has made it yet */
export async function ownWatermarks(session: Session, name: TopicName): Promise<Watermarks> {
  const [marks] = await session.log.watermarks([{ ...name, partition: 0 }])
  if (marks instanceof MillraceError) throw marks
  return marks as Watermarks
}
