import type { TopicName } from "@millrace/contract"
import type { Consumer, Lag } from "../consumer/consumer.ts"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import { GroupFilter } from "../filter/group-filter.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import { groupLag, resetGroupOffsets } from "../group/group-offsets.ts"
import { openGroupReader } from "../group/group-page-reader.ts"
import type { GroupReader } from "../group/group-reader.ts"
import type { GroupReaderOptions } from "../group/group-reader-options.ts"
import type { StartAt } from "../partition/start-at.ts"
import type { LiveContext } from "./live-context.ts"
import { checkName } from "./names.ts"
import { shown } from "./options.ts"
import { need } from "./topic-options.ts"

/** A consumer group as it is. */
export interface GroupInfo {
  readonly group: string
  /** Counts the assignments of partitions to members. */
  readonly generation: number
  readonly members: readonly GroupMemberInfo[]
  /** How far the group is behind in each partition of the topic that it was named on. */
  readonly lag: readonly Lag[]
}

export interface GroupMemberInfo {
  readonly memberId: string
  readonly partitions: readonly { readonly stream: string; readonly topic: string; readonly partition: number }[]
}

/** A consumer group on a topic, by name. A thin handle. */
export class ConsumerGroup {
  readonly name: string
  readonly #context: LiveContext
  readonly #topic: TopicName

  /** @throws InvalidError for the name */
  constructor(context: LiveContext, topic: TopicName, name: string) {
    this.#context = context
    this.#topic = topic
    this.name = checkName("group", name, context.manifest.limits)
  }

  /**
   * Joins the group, created where it is missing, and reads the partitions that it gives.
   * @throws InvalidError, UnsupportedError for the options; NotFoundError, ClosedError
   */
  async consumer(options?: GroupConsumerOptions): Promise<Consumer> {
    this.#context.assertOpen()
    return await openGroupConsumer(this.#context, { topic: this.#topic, group: this.name }, options)
  }

  /**
   * Joins the group as a consumer does, and reads in pages that are acknowledged one by one or message by message, in any order.
   * @throws as `consumer`
   */
  async reader(options?: GroupReaderOptions): Promise<GroupReader> {
    this.#context.assertOpen()
    return await openGroupReader(this.#context, { topic: this.#topic, group: this.name }, options)
  }

  /** The filter that decides which records of the topic the group's consumers and readers get. Asks nothing before a method does. */
  filter(): GroupFilter {
    return new GroupFilter(this.#context, this.#topic, this.name)
  }

  /** The members, and how far the group is behind. @throws NotFoundError, UnsupportedError where the backend has no groups */
  async describe(): Promise<GroupInfo> {
    const { group, generation, members } = await this.#groups.describe(this.name, this.#topic)
    const lag = await groupLag(this.#context, { group: this.name, topic: this.#topic })
    return { group, generation, members, lag }
  }

  /**
   * Moves the group's progress in every partition of the topic, for the members that come next: to the oldest record, the newest one, the
   * record at an offset (in a partition that does not reach so far its first or its end), or the first one that was appended at or after a
   * time (it may be up to a batch earlier). Progress moves back as well as forward.
   * @throws InvalidError while a member reads the topic, and for `{ kind: "next" }`; NotFoundError; UnsupportedError
   */
  async resetOffsets(to: StartAt): Promise<void> {
    this.#refuseWithoutGroups()
    await resetGroupOffsets(this.#context, { group: this.name, topic: this.#topic }, to)
  }

  /**
   * Forgets the group and its offsets; members lose their partitions. Its filter belongs to the name and stays: `filter().delete()`.
   * @throws NotFoundError, UnsupportedError
   */
  async delete(): Promise<void> {
    await this.#groups.delete(this.name, this.#topic)
  }

  get #groups(): LiveContext["session"]["groups"] {
    this.#refuseWithoutGroups()
    return this.#context.session.groups
  }

  #refuseWithoutGroups(): void {
    this.#context.assertOpen()
    const { manifest } = this.#context
    need(manifest, manifest.groups, { owner: `group ${shown(this.name)}`, what: "consumer groups" })
  }
}
