/**
 * Where reports of statistics are kept: one topic of the backend, made by the first reporter that has something to tell. Small state of
 * the backend would serve as well, but not every backend has some, and every one has topics.
 */
import {
  type BatchStamp,
  batchId,
  Headers,
  type Manifest,
  type Session,
  type TopicDescription,
  type TopicName,
  type TopicSpec,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { ensureTopic } from "../client/ensure-topic.ts"
import { CachedTopicDirectory } from "../client/topic-directory.ts"
import { topicSpec } from "../client/topic-options.ts"

/** The stream of Millrace's own topics. `client.streams()` leaves it out. */
export const ownStream = "millrace"

/** One partition; the key of a record is the reporting process, so that its newest report stands for it. */
export const reportTopic: TopicName = Object.freeze({ stream: ownStream, topic: "producers" })

/** Twice as long as the longest interval keeps a report alive is enough by far. */
const expireAfterMs = 600_000

const utf8 = new TextEncoder()

/** Writes reports of one process over one session. To be used no more after a failure: the topic may be another one. */
export class ReportWriter {
  readonly #session: Session
  readonly #clock: Clock
  readonly #random: Random
  readonly #key: Uint8Array
  #topic: TopicDescription | undefined

  /** @param reporter Names the process: a ULID. */
  constructor(session: Session, reporter: string, parts: { readonly clock: Clock; readonly random: Random }) {
    this.#session = session
    this.#key = utf8.encode(reporter)
    this.#clock = parts.clock
    this.#random = parts.random
  }

  /** Appends one report, to a topic that is made where it is missing. @throws what the backend says */
  async write(payload: Uint8Array): Promise<void> {
    this.#topic ??= await this.#ensure()
    await this.#append(this.#topic, payload)
  }

  async #append(topic: TopicDescription, payload: Uint8Array): Promise<void> {
    const { log, manifest } = this.#session
    const writer = log.writer(topic, 0, { records: 1, bytes: manifest.limits.batchBytes })
    writer.tryAppend({ payload, key: this.#key, headers: Headers.empty, id: undefined, timestampMicros: undefined })
    const sealed = writer.seal(this.#stamp())
    try {
      await log.append(sealed, {})
    } finally {
      sealed.release()
    }
  }

  #ensure(): Promise<TopicDescription> {
    const { catalog, manifest } = this.#session
    const topics = new CachedTopicDirectory(catalog)
    return ensureTopic({ session: this.#session, clock: this.#clock, topics }, reportTopic, {
      stream: true,
      topic: reportSpec(manifest),
    })
  }

  #stamp(): BatchStamp {
    const timestampMicros = this.#clock.nowMicros()
    const low = (BigInt(this.#random.uint32() & 0x3ff) << 32n) | BigInt(this.#random.uint32())
    const id = batchId(Number(timestampMicros / 1000n), this.#random.uint32() & 0xfff, low)
    return { id, timestampMicros, resend: false }
  }
}

/** Kept as briefly and as cheaply as the backend can. */
function reportSpec(manifest: Manifest): TopicSpec {
  const { append, catalog } = manifest
  const options = {
    ...(catalog.expiry.supported ? { expireAfterMs } : {}),
    ...(append.durability.includes("written") ? { durability: "written" as const } : {}),
    deduplicationWindowMs: 0,
  }
  return topicSpec("the topic of producer statistics", { partitions: 1, options }, manifest)
}
