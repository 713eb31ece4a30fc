import type {
  Catalog,
  StreamDescription,
  TopicDescription,
  TopicName,
  TopicPartition,
  TopicSpec,
  Watermarks,
} from "@millrace/contract"
import type { Channel } from "./channel.ts"

/** The contract's catalog over a channel to the engine. */
export class EmbeddedCatalog implements Catalog {
  readonly #channel: Channel

  constructor(channel: Channel) {
    this.#channel = channel
  }

  createStream(stream: string): Promise<void> {
    return this.#channel.call("catalog.createStream", stream)
  }

  createTopic(name: TopicName, spec: TopicSpec): Promise<TopicDescription> {
    return this.#channel.call("catalog.createTopic", { name: plain(name), spec: { ...spec } })
  }

  describeStream(stream: string): Promise<StreamDescription> {
    return this.#channel.call("catalog.describeStream", stream)
  }

  describeTopic(name: TopicName): Promise<TopicDescription> {
    return this.#channel.call("catalog.describeTopic", plain(name))
  }

  listStreams(): Promise<StreamDescription[]> {
    return this.#channel.call("catalog.listStreams", undefined)
  }

  listTopics(stream: string): Promise<TopicDescription[]> {
    return this.#channel.call("catalog.listTopics", stream)
  }

  addPartitions(name: TopicName, count: number): Promise<TopicDescription> {
    return this.#channel.call("catalog.addPartitions", { name: plain(name), count })
  }

  trim({ stream, topic, partition }: TopicPartition, before: bigint): Promise<Watermarks> {
    return this.#channel.call("catalog.trim", { at: { stream, topic, partition }, before })
  }

  purgeTopic(name: TopicName): Promise<void> {
    return this.#channel.call("catalog.purgeTopic", plain(name))
  }

  deleteTopic(name: TopicName): Promise<void> {
    return this.#channel.call("catalog.deleteTopic", plain(name))
  }

  deleteStream(stream: string): Promise<void> {
    return this.#channel.call("catalog.deleteStream", stream)
  }
}

/** Callers may hand in larger objects, such as descriptions; only the name crosses the thread. */
function plain({ stream, topic }: TopicName): TopicName {
  return { stream, topic }
}
