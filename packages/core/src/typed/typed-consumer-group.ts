import type { TopicName } from "@millrace/contract"
import { ConsumerGroup, type GroupInfo } from "../client/consumer-group.ts"
import type { LiveContext } from "../client/live-context.ts"
import { topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import type { Codec } from "../codec/codec.ts"
import type { GroupFilter } from "../filter/group-filter.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import { openGroupReader } from "../group/group-page-reader.ts"
import type { StartAt } from "../partition/start-at.ts"
import { decodingOf } from "./decoding.ts"
import {
  type TypedConsumer,
  type TypedGroupConsumerOptions,
  type TypedGroupReader,
  type TypedGroupReaderOptions,
  type ValuesOnly,
  withoutDecoding,
} from "./typed-consumer.ts"
import type { TypedOrRawMessage } from "./typed-message.ts"

/** A consumer group whose members get values: the same group as `topic.consumerGroup(name)`, and members of both kinds share it. */
export class TypedConsumerGroup<T> {
  readonly name: string
  readonly #context: LiveContext
  readonly #topic: TopicName
  readonly #codec: Codec<T>
  readonly #group: ConsumerGroup

  /** @throws InvalidError for the name */
  constructor(context: LiveContext, topic: TopicName, of: { readonly name: string; readonly codec: Codec<T> }) {
    this.#group = new ConsumerGroup(context, topic, of.name)
    this.name = this.#group.name
    this.#context = context
    this.#topic = topic
    this.#codec = of.codec
  }

  /** As `ConsumerGroup.consumer`. Records of further `topics` are decoded by the same codec. @throws InvalidError for `onDecodeError` */
  consumer(options?: TypedGroupConsumerOptions & ValuesOnly): Promise<TypedConsumer<T>>
  consumer(options: TypedGroupConsumerOptions): Promise<TypedConsumer<T, TypedOrRawMessage<T>>>
  async consumer(options?: TypedGroupConsumerOptions): Promise<TypedConsumer<T, TypedOrRawMessage<T>>> {
    this.#context.assertOpen()
    const { onDecodeError, rest } = withoutDecoding(this.#what, options)
    const decoding = decodingOf(this.#what, this.#codec as Codec<unknown>, onDecodeError)
    const source = { topic: this.#topic, group: this.name, decoding }
    const consumer = await openGroupConsumer(this.#context, source, rest)
    // Its messages are what the decoder makes them.
    return consumer as unknown as TypedConsumer<T, TypedOrRawMessage<T>>
  }

  /** As `ConsumerGroup.reader`. @throws InvalidError for `onDecodeError` */
  reader(options?: TypedGroupReaderOptions & ValuesOnly): Promise<TypedGroupReader<T>>
  reader(options: TypedGroupReaderOptions): Promise<TypedGroupReader<T, TypedOrRawMessage<T>>>
  async reader(options?: TypedGroupReaderOptions): Promise<TypedGroupReader<T, TypedOrRawMessage<T>>> {
    this.#context.assertOpen()
    const { onDecodeError, rest } = withoutDecoding(this.#what, options)
    const decoding = decodingOf(this.#what, this.#codec as Codec<unknown>, onDecodeError)
    const source = { topic: this.#topic, group: this.name, decoding }
    const reader = await openGroupReader(this.#context, source, rest)
    return reader as unknown as TypedGroupReader<T, TypedOrRawMessage<T>>
  }

  /** As `ConsumerGroup.filter`. */
  filter(): GroupFilter {
    return this.#group.filter()
  }

  /** As `ConsumerGroup.describe`. */
  describe(): Promise<GroupInfo> {
    return this.#group.describe()
  }

  /** As `ConsumerGroup.resetOffsets`. */
  resetOffsets(to: StartAt): Promise<void> {
    return this.#group.resetOffsets(to)
  }

  /** As `ConsumerGroup.delete`. */
  delete(): Promise<void> {
    return this.#group.delete()
  }

  get #what(): string {
    return `group ${shown(this.name)} on topic "${topicText(this.#topic)}"`
  }
}
