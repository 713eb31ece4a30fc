import type { TopicName } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import { openGroupConsumer } from "../consumer/group-consumer.ts"
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

  /** @throws NotFoundError, UnsupportedError where the backend has no groups */
  async describe(): Promise<GroupInfo> {
    return await this.#groups.describe(this.name, this.#topic)
  }

  /** Forgets the group and its offsets; members lose their partitions. @throws NotFoundError, UnsupportedError */
  async delete(): Promise<void> {
    await this.#groups.delete(this.name, this.#topic)
  }

  get #groups(): LiveContext["session"]["groups"] {
    this.#context.assertOpen()
    const { manifest, session } = this.#context
    need(manifest, manifest.groups, { owner: `group ${shown(this.name)}`, what: "consumer groups" })
    return session.groups
  }
}
