import { NotFoundError, type StreamDescription } from "@millrace/contract"
import { ensureStream } from "./ensure-topic.ts"
import type { LiveContext } from "./live-context.ts"
import { checkName } from "./names.ts"
import { Topic } from "./topic.ts"
import { type TopicInfo, topicInfo } from "./topic-options.ts"

/** A stream as it is. */
export interface StreamInfo {
  readonly stream: string
  /** How many topics it has. */
  readonly topics: number
  /** Absent where streams are prefixes. */
  readonly createdMicros?: bigint
}

/** A stream by name: a group of topics. A thin handle; nothing is asked or made before a method says so. */
export class Stream {
  readonly name: string
  readonly #context: LiveContext

  /** @throws InvalidError for the name */
  constructor(context: LiveContext, name: string) {
    this.#context = context
    this.name = checkName("stream", name, context.manifest.limits)
  }

  /** A topic of this stream. @throws InvalidError for the name */
  topic(name: string): Topic {
    return new Topic(this.#context, { stream: this.name, topic: name })
  }

  /** Creates the stream where it is missing and streams are objects of the backend. */
  async ensure(): Promise<void> {
    this.#context.assertOpen()
    await ensureStream(this.#context, this.name)
  }

  /** The topics that exist when the iteration begins. @throws NotFoundError */
  topics(): AsyncIterable<TopicInfo> {
    return listed(this.#context, async () => (await this.#context.session.catalog.listTopics(this.name)).map(topicInfo))
  }

  /** @throws NotFoundError */
  async describe(): Promise<StreamInfo> {
    this.#context.assertOpen()
    return streamInfo(await this.#context.session.catalog.describeStream(this.name))
  }

  /**
   * Purges every topic, one after the other; topics that come and go meanwhile may or may not be among them. Where it fails, the ones
   * before are purged.
   * @throws NotFoundError for the stream
   */
  async purge(): Promise<void> {
    this.#context.assertOpen()
    const { catalog } = this.#context.session
    for (const { stream, topic } of await catalog.listTopics(this.name)) {
      try {
        await catalog.purgeTopic({ stream, topic })
      } catch (error) {
        if (!(error instanceof NotFoundError)) throw error
      }
      this.#context.topics.forget({ stream, topic })
    }
  }

  /** Deletes the stream with all of its topics. @throws NotFoundError */
  async delete(): Promise<void> {
    this.#context.assertOpen()
    const { catalog } = this.#context.session
    const topics = await catalog.listTopics(this.name)
    await catalog.deleteStream(this.name)
    for (const { stream, topic } of topics) this.#context.topics.forget({ stream, topic })
  }
}

export function streamInfo({ stream, topics, createdMicros }: StreamDescription): StreamInfo {
  return createdMicros === undefined ? { stream, topics } : { stream, topics, createdMicros }
}

/** What one request lists, asked for when the iteration begins. */
export async function* listed<T>(
  context: LiveContext,
  list: () => Promise<readonly T[]>,
): AsyncGenerator<T, void, void> {
  context.assertOpen()
  yield* await list()
}
