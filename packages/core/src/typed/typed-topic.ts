import { InvalidError, type TopicName } from "@millrace/contract"
import type { LiveContext } from "../client/live-context.ts"
import { checkName, topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import type { Codec } from "../codec/codec.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import type { SendResult } from "../producer/confirmation.ts"
import { openProducer } from "../producer/open-producer.ts"
import type { ProducerOptions } from "../producer/producer-options.ts"
import { publishOne } from "../producer/publish.ts"
import { Queue } from "../queue/queue.ts"
import type { QueueOptions } from "../queue/queue-options.ts"
import type { TypedQueueMessage } from "../queue/valued-message.ts"
import { decodingOf } from "./decoding.ts"
import {
  checkTypedOptions,
  describes,
  RecordEncoder,
  type TypedSendOptions,
  type TypedTopicOptions,
} from "./record-encoder.ts"
import { TypedBatchBuilder } from "./typed-batch-builder.ts"
import { type TypedConsumer, type TypedConsumerOptions, type ValuesOnly, withoutDecoding } from "./typed-consumer.ts"
import { TypedConsumerGroup } from "./typed-consumer-group.ts"
import type { TypedOrRawMessage } from "./typed-message.ts"
import { TypedProducer } from "./typed-producer.ts"
import { openTypedReader, type TypedReader } from "./typed-reader.ts"

/** What is behind a typed topic. */
export interface TypedTopicParts<T> {
  readonly context: LiveContext
  readonly name: TopicName
  readonly codec: Codec<T>
  /** Makes records of its values, as `publish` does. */
  readonly encoder: RecordEncoder<T>
}

let partsOf: <T>(topic: TypedTopic<T>) => TypedTopicParts<T>

/** What is behind a typed topic, for what works on its values. @throws InvalidError for anything but a typed topic */
export function typedParts<T>(topic: TypedTopic<T>): TypedTopicParts<T> {
  if (topic instanceof TypedTopic) return partsOf(topic)
  throw new InvalidError(`a typed topic, as topic.json() and its like give it, is needed, not ${shown(topic)}`)
}

/**
 * A topic whose payloads are values, by a codec (seed 000, "Typed handles and readers"): `topic.json(codec)` and its like, or
 * `topic.typed(codec)` for any codec. A thin handle: several may stand on one topic, each with a codec of its own.
 */
export class TypedTopic<T> {
  /** Of the topic; empty for the backend's own topic of exactly this name. */
  readonly stream: string
  readonly name: string
  readonly codec: Codec<T>
  readonly #context: LiveContext
  readonly #topic: TopicName
  readonly #options: TypedTopicOptions
  readonly #encoder: RecordEncoder<T>

  static {
    partsOf = (topic) => ({
      context: topic.#context,
      name: topic.#topic,
      codec: topic.codec,
      encoder: topic.#encoder,
    })
  }

  /** Made by a topic. @throws InvalidError for what is no codec, and for an option */
  constructor(
    context: LiveContext,
    topic: TopicName,
    of: { readonly codec: Codec<T>; readonly options?: TypedTopicOptions | undefined },
  ) {
    const what = `topic "${topicText(topic)}"`
    this.stream = topic.stream
    this.name = topic.topic
    this.codec = checkCodec(what, of.codec)
    this.#context = context
    this.#topic = topic
    this.#options = checkTypedOptions(what, of.options)
    this.#encoder = new RecordEncoder(this.codec, { describes: describes(context, this.#options, undefined) })
  }

  /**
   * Encodes one value, sends it, and waits for its confirmation, with the connection's publish timeout and retries. `null` is a tombstone.
   * @throws InvalidError when the value has no encoding, before anything is sent; else as `topic.publish().send()`
   */
  async publish(value: T | null, options?: TypedSendOptions): Promise<SendResult> {
    const encoder = this.#encoder
    const payload = encoder.payload(value)
    const sent = { payload, options: encoder.options(payload, options), own: encoder.own }
    return await publishOne(this.#context, this.#topic, sent)
  }

  /** Collects values on the client and sends them together. */
  publishBatch(): TypedBatchBuilder<T> {
    return new TypedBatchBuilder(this.#context, this.#topic, this.#encoder)
  }

  /** A producer of values. @throws InvalidError, UnsupportedError for the options; ClosedError */
  producer(options?: ProducerOptions): TypedProducer<T> {
    const encoder = new RecordEncoder(this.codec, {
      describes: describes(this.#context, this.#options, options?.encryptor),
    })
    return new TypedProducer(openProducer(this.#context, this.#topic, options, { headers: encoder.own }), encoder)
  }

  /**
   * A reader of every partition from the first record on, with offsets of its own: not a consumer, and nothing is stored for it.
   * @param name What the reader is called in errors: nothing is stored under it.
   * @param batch The most records of one request. Default 1000.
   * @throws InvalidError for a name or a batch that cannot be right
   */
  async records(name: string, batch?: number): Promise<TypedReader<T>> {
    checkName("reader", name, this.#context.session.manifest.limits)
    return openTypedReader(this.#context, this.#topic, { name, codec: this.codec, batch })
  }

  /**
   * Reads one partition, as `topic.consumer` does, with values.
   * @throws InvalidError for the name, the partition number or an option
   */
  consumer(name: string | undefined, partition: number, options?: TypedConsumerOptions & ValuesOnly): TypedConsumer<T>
  consumer(
    name: string | undefined,
    partition: number,
    options: TypedConsumerOptions,
  ): TypedConsumer<T, TypedOrRawMessage<T>>
  consumer(
    name: string | undefined,
    partition: number,
    options?: TypedConsumerOptions,
  ): TypedConsumer<T, TypedOrRawMessage<T>> {
    const what = `consumer of topic "${topicText(this.#topic)}"`
    const { onDecodeError, rest } = withoutDecoding(what, options)
    const decoding = decodingOf(what, this.codec as Codec<unknown>, onDecodeError)
    const consumer = openConsumer(this.#context, { topic: this.#topic, name, partition, decoding }, rest)
    // Its messages are what the decoder makes them.
    return consumer as unknown as TypedConsumer<T, TypedOrRawMessage<T>>
  }

  /**
   * A work queue over the topic, as `topic.queue`, whose messages have values. A record that does not decode has failed like one whose
   * handler has: where the queue has a dead-letter topic it goes there at once.
   * @throws InvalidError for the name or an option, UnsupportedError where the backend has no queues
   */
  queue(name: string, options?: QueueOptions): Queue<TypedQueueMessage<T>> {
    return new Queue(this.#context, this.#topic, { name, options, codec: this.codec as Codec<unknown> })
  }

  /** A group of consumers that share the topic's partitions, with values. @throws InvalidError for the name */
  consumerGroup(name: string): TypedConsumerGroup<T> {
    return new TypedConsumerGroup(this.#context, this.#topic, { name, codec: this.codec })
  }
}

function checkCodec<T>(what: string, codec: Codec<T>): Codec<T> {
  const { name, encode, decode } = (codec ?? {}) as Partial<Codec<T>>
  if (typeof name === "string" && typeof encode === "function" && typeof decode === "function") return codec
  throw new InvalidError(`${what}: a codec has a name, encode and decode; ${shown(codec)} is none`)
}
