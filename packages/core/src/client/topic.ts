import { InvalidError, type TopicName, type Watermarks } from "@millrace/contract"
import { Arrow, type ArrowTable } from "../codec/arrow.ts"
import { Avro, type AvroSchema } from "../codec/avro.ts"
import { Bson } from "../codec/bson.ts"
import { bytes } from "../codec/bytes.ts"
import { Cbor } from "../codec/cbor.ts"
import type { Codec } from "../codec/codec.ts"
import { Json } from "../codec/json.ts"
import { JsonSchema } from "../codec/json-schema.ts"
import { Msgpack } from "../codec/msgpack.ts"
import { Protobuf, type ProtobufSource } from "../codec/protobuf.ts"
import type { ProtobufType } from "../codec/protobuf-library.ts"
import type { StandardSchema } from "../codec/standard-schema.ts"
import { text } from "../codec/text.ts"
import type { Consumer } from "../consumer/consumer.ts"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import type { Cursor } from "../cursor/cursor.ts"
import { openCursor, type ReaderOptions } from "../cursor/log-cursor.ts"
import { BatchPublishBuilder } from "../producer/batch-publish-builder.ts"
import { BatchingBuilder } from "../producer/batching-builder.ts"
import type { SendResult } from "../producer/confirmation.ts"
import { openProducer } from "../producer/open-producer.ts"
import { batchPool, PooledBatchBuilder } from "../producer/pooled-batch-builder.ts"
import type { Producer } from "../producer/producer.ts"
import type { ProducerOptions } from "../producer/producer-options.ts"
import { type ResendOptions, resendBatch } from "../producer/publish.ts"
import { PublishBuilder } from "../producer/publish-builder.ts"
import { outOfRange } from "../producer/routing.ts"
import { Queue } from "../queue/queue.ts"
import type { QueueOptions } from "../queue/queue-options.ts"
import type { Message } from "../record/message.ts"
import { checkPartitionNumber, type OutgoingRecord } from "../record/outgoing-record.ts"
import { openSchemaCodec, type SchemaCodecOptions } from "../schema/schema-codec.ts"
import type { TypedTopicOptions } from "../typed/record-encoder.ts"
import { TypedTopic } from "../typed/typed-topic.ts"
import { ConsumerGroup } from "./consumer-group.ts"
import { ensureTopic } from "./ensure-topic.ts"
import type { LiveContext } from "./live-context.ts"
import { checkName, topicText } from "./names.ts"
import { shown } from "./options.ts"
import { lookIntoTopicsBy } from "./topic-context.ts"
import { checkPartitionCount, need, type TopicInfo, type TopicOptions, topicInfo, topicSpec } from "./topic-options.ts"

/** A topic by name: a log in partitions. A thin handle; nothing is asked or made before a method says so. */
export class Topic {
  /** Empty for the backend's own topic of exactly this name. */
  readonly stream: string
  readonly name: string
  readonly #context: LiveContext
  readonly #name: TopicName

  static {
    lookIntoTopicsBy((topic) => (topic instanceof Topic ? topic.#context : undefined))
  }

  /** @throws InvalidError for the name */
  constructor(context: LiveContext, name: TopicName) {
    this.#context = context
    this.stream = name.stream
    this.name = checkName("topic", name.topic, context.manifest.limits)
    this.#name = { stream: this.stream, topic: this.name }
  }

  /**
   * Creates what is missing: the stream, then the topic, which never expires unless the options say so. Changes nothing that exists,
   * also when its partitions or settings are others than asked for. Who loses a race to create it gets the winner's.
   * @param partitions Of a topic that is created. Default 1.
   * @throws InvalidError for values out of range, UnsupportedError for what the backend cannot do
   */
  async ensure(partitions: number = 1, options?: TopicOptions): Promise<TopicInfo> {
    this.#context.assertOpen()
    const spec = topicSpec(this.#text, { partitions, options }, this.#context.manifest)
    return topicInfo(await ensureTopic(this.#context, this.#name, { stream: true, topic: spec }))
  }

  /** @throws NotFoundError */
  async describe(): Promise<TopicInfo> {
    this.#context.assertOpen()
    this.#context.topics.forget(this.#name)
    return topicInfo(await this.#context.topics.describe(this.#name))
  }

  /** The first and the next offset of each partition, in order. @throws NotFoundError, and what one partition failed with */
  async watermarks(): Promise<Watermarks[]> {
    const { partitions } = await this.describe()
    const places = Array.from({ length: partitions }, (_, partition) => ({ ...this.#name, partition }))
    const answers = await this.#context.session.log.watermarks(places)
    return answers.map((answer) => {
      if (answer instanceof Error) throw answer
      return answer
    })
  }

  /**
   * Adds partitions behind the present ones. Keys may go to other partitions from then on.
   * @param count How many more, from 1; at most the manifest's limit in all.
   * @throws NotFoundError, UnsupportedError
   */
  async addPartitions(count: number): Promise<void> {
    this.#context.assertOpen()
    const { manifest, session, topics } = this.#context
    need(manifest, manifest.catalog.addPartitions, { owner: this.#text, what: "way to add partitions" })
    checkPartitionCount(this.#text, count, manifest)
    topics.forget(this.#name)
    const present = (await topics.describe(this.#name)).partitions.length
    if (present + count > manifest.limits.partitions) {
      throw new InvalidError(
        `${this.#text}: ${present} partitions and ${count} more are too many: a topic has at most ${manifest.limits.partitions}`,
      )
    }
    try {
      await session.catalog.addPartitions(this.#name, count)
    } finally {
      topics.forget(this.#name)
    }
  }

  /**
   * Removes records of one partition below an offset, in whole batches: some below it may stay, none at or behind it goes.
   * @throws InvalidError for the offset or a partition that the topic does not have; NotFoundError, UnsupportedError
   */
  async trim(partition: number, before: bigint): Promise<void> {
    const { manifest, session } = this.#context
    need(manifest, manifest.catalog.trim, { owner: this.#text, what: "trimming" })
    if (typeof before !== "bigint" || before < 0n) {
      throw new InvalidError(`${this.#text}: offset ${shown(before)} is not a bigint from 0`)
    }
    checkPartitionNumber(partition)
    const { partitions } = await this.describe()
    if (partition >= partitions) throw outOfRange(`partition ${partition}`, { ...this.#name, partitions })
    await session.catalog.trim({ ...this.#name, partition }, before)
  }

  /**
   * Removes every record. Where the manifest's `catalog.purge` is `restarts`, offsets begin again at 0 in a new history, to which
   * stored offsets do not apply.
   * @throws NotFoundError
   */
  async purge(): Promise<void> {
    this.#context.assertOpen()
    await this.#context.session.catalog.purgeTopic(this.#name)
    this.#context.topics.forget(this.#name)
  }

  /** @throws NotFoundError */
  async delete(): Promise<void> {
    this.#context.assertOpen()
    try {
      await this.#context.session.catalog.deleteTopic(this.#name)
    } finally {
      this.#context.topics.forget(this.#name)
    }
  }

  /** Builds one record, sends it with the connection's publish timeout and retries, and waits for its confirmation. */
  publish(): PublishBuilder {
    return new PublishBuilder(this.#context, this.#name)
  }

  /** Collects records on the client and sends them together. */
  publishBatch(): BatchPublishBuilder {
    return new BatchPublishBuilder(this.#context, this.#name)
  }

  /**
   * Sends records of a failed publish again (`error.unconfirmed`), with the ids that they carry and to the partitions that they were
   * tried on. A backend that recognises ids leaves out what is already there, and `duplicates` counts it. Records that were encrypted
   * go out with the same bytes; others are encrypted, where there is an encryptor.
   * @throws as `Producer.sendBatch`
   */
  batch(records: readonly OutgoingRecord[], options?: ResendOptions): Promise<SendResult> {
    return resendBatch(this.#context, this.#name, { records, options })
  }

  /** A direct producer. @throws InvalidError, UnsupportedError for the options; ClosedError */
  producer(options?: ProducerOptions): Producer {
    return openProducer(this.#context, this.#name, options)
  }

  /** Sets up a producer that collects records on the client and sends each flush as one append. */
  batching(): BatchingBuilder {
    return new BatchingBuilder(this.#context, this.#name)
  }

  /**
   * Builds a batch whose payloads are written straight into pooled buffers, for `producer.send(batch)`.
   * @param sizeHintBytes How much room the first buffer has at least. Default 1024.
   * @throws InvalidError for the hint
   */
  batchBuilder(sizeHintBytes: number = 1024): PooledBatchBuilder {
    return new PooledBatchBuilder({ limits: this.#context.manifest.limits, pool: batchPool, sizeHintBytes })
  }

  /**
   * Reads one partition. Progress is stored under `name`; without a name it is the consumer's own, and nothing is stored.
   * @throws InvalidError for the name, the partition number or an option
   */
  consumer(name: string | undefined, partition: number, options?: ConsumerOptions): Consumer {
    return openConsumer(this.#context, { topic: this.#name, name, partition }, options)
  }

  /** A group of consumers that share the topic's partitions. @throws InvalidError for the name */
  consumerGroup(name: string): ConsumerGroup {
    return new ConsumerGroup(this.#context, this.#name, name)
  }

  /**
   * A work queue over the topic: messages are handed out one by one, each to one consumer at a time, and settled one by one.
   * @throws InvalidError for the name or an option, UnsupportedError where the backend has no queues
   */
  queue(name: string, options?: QueueOptions): Queue {
    return new Queue(this.#context, this.#name, { name, options })
  }

  /** A cursor over every partition, with offsets of its own. */
  replay(options?: ReaderOptions): Promise<Cursor<Message>> {
    return openCursor(this.#context, this.#name, options)
  }

  /**
   * The topic with values in place of bytes: JSON text, checked by the codec's decode function or by a Standard Schema (seed 000, "Typed
   * handles and readers"). The other formats are alike; each loads its library when its codec is made.
   * @throws InvalidError for what is neither
   */
  json<T>(codec: Json<T> | StandardSchema<T>, options?: TypedTopicOptions): TypedTopic<T> {
    return this.typed(codec instanceof Json ? codec : new Json(codec), options)
  }

  /** Values in CBOR. @throws UnsupportedError without the package `cborg` */
  cbor<T>(codec: Cbor<T> | StandardSchema<T>, options?: TypedTopicOptions): TypedTopic<T> {
    return this.typed(codec instanceof Cbor ? codec : new Cbor(codec), options)
  }

  /** Values in MessagePack. @throws UnsupportedError without the package `msgpackr` */
  msgpack<T>(codec: Msgpack<T> | StandardSchema<T>, options?: TypedTopicOptions): TypedTopic<T> {
    return this.typed(codec instanceof Msgpack ? codec : new Msgpack(codec), options)
  }

  /** Documents in BSON. @throws UnsupportedError without the package `bson` */
  bson<T>(codec: Bson<T> | StandardSchema<T>, options?: TypedTopicOptions): TypedTopic<T> {
    return this.typed(codec instanceof Bson ? codec : new Bson(codec), options)
  }

  /** Strings in UTF-8. */
  text(options?: TypedTopicOptions): TypedTopic<string> {
    return this.typed(text, options)
  }

  /** Bytes as they are. */
  bytes(options?: TypedTopicOptions): TypedTopic<Uint8Array> {
    return this.typed(bytes, options)
  }

  /** Values of one Avro schema. @throws InvalidError for the schema, UnsupportedError without the package `avsc` */
  avro<T = unknown>(codec: Avro<T> | AvroSchema, options?: TypedTopicOptions): TypedTopic<T> {
    return this.typed(codec instanceof Avro ? codec : new Avro<T>(codec), options)
  }

  /** Messages of one Protobuf type. @throws InvalidError for the type, UnsupportedError without the package `protobufjs` */
  protobuf<T = unknown>(
    codec: Protobuf<T> | ProtobufType | ProtobufSource,
    options?: TypedTopicOptions,
  ): TypedTopic<T> {
    return this.typed(codec instanceof Protobuf ? codec : new Protobuf<T>(codec), options)
  }

  /** JSON that fits a JSON Schema. @throws InvalidError for the schema, UnsupportedError without the package `ajv` */
  jsonSchema<T = unknown>(codec: JsonSchema<T> | object | boolean, options?: TypedTopicOptions): TypedTopic<T> {
    return this.typed(codec instanceof JsonSchema ? codec : new JsonSchema<T>(codec), options)
  }

  /** Tables as Arrow IPC streams. @throws UnsupportedError without the package `apache-arrow` */
  arrow<T extends ArrowTable = ArrowTable>(options?: TypedTopicOptions): TypedTopic<T> {
    return this.typed(new Arrow<T>(), options)
  }

  /** Values of any codec. @throws InvalidError for what is no codec */
  typed<T>(codec: Codec<T>, options?: TypedTopicOptions): TypedTopic<T> {
    return new TypedTopic(this.#context, this.#name, { codec, options })
  }

  /**
   * Values of a registered schema (seed 000, "Key operations"). What is published carries its id; what is read is decoded by the schema that
   * the record names, as a value of this one.
   * @throws NotFoundError that names the id, InvalidError for the options, UnsupportedError where the backend keeps no schemas or the
   *   format's library is not installed
   */
  async schema(id: number, options?: SchemaCodecOptions): Promise<TypedTopic<unknown>> {
    this.#context.assertOpen()
    const { schemas: registry, clock } = this.#context
    return this.typed(await openSchemaCodec({ registry, clock }, id, options))
  }

  get #text(): string {
    return `topic "${topicText(this.#name)}"`
  }
}
