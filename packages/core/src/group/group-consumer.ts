import type { Membership, TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { checkName, topicKey, topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import { need } from "../client/topic-options.ts"
import {
  type ConsumerSettings,
  type GroupConsumerOptions,
  type GroupSettings,
  groupConsumerSettings,
} from "../consumer/consumer-options.ts"
import { LogConsumer } from "../consumer/log-consumer.ts"
import { isEncrypted } from "../encryption/sealing.ts"
import { GroupRecords } from "../filter/group-records.ts"
import { checkOnReadEncryption } from "../progress/commit-policy.ts"
import { checkDecoding, type Decoding } from "../typed/decoding.ts"
import { joinGroup, retried } from "./group-join.ts"
import { GroupMember, type MemberSettings } from "./group-member.ts"

/**
 * Joins a group and reads the partitions it gives (`topic.consumerGroup(name).consumer`, seed 000). Settles once the first assignment has
 * its positions: records that are published from then on are delivered.
 * @param source.topic The topic that the group was named on; `options.topics` adds to it.
 * @throws InvalidError for an option or a name; NotFoundError when a topic is missing, or the group with `createGroup: false`;
 *   UnsupportedError where the backend has no groups.
 */
export async function openGroupConsumer(
  context: ClientContext,
  source: { readonly topic: TopicName; readonly group: string; readonly decoding?: Decoding | undefined },
  options?: GroupConsumerOptions,
): Promise<LogConsumer> {
  const what = `consumer of group ${shown(source.group)} on topic "${topicText(source.topic)}"`
  return await openGroupLog(context, { ...source, what }, options)
}

/** The same for those who build upon it. @param source.what How errors call it. */
export async function openGroupLog(
  context: ClientContext,
  source: {
    readonly topic: TopicName
    readonly group: string
    readonly what: string
    readonly decoding?: Decoding | undefined
  },
  options?: GroupConsumerOptions,
): Promise<LogConsumer> {
  const { manifest } = context.session
  const { what } = source
  const group = checkName("group", source.group, manifest.limits)
  const checked = groupConsumerSettings(what, options, manifest.limits)
  const settings = { ...checked, consumer: { ...checked.consumer, decoding: source.decoding } }
  const encrypted = isEncrypted(context, settings.consumer.encryptor)
  checkOnReadEncryption(what, settings.consumer.commitPolicy, { encrypted })
  checkDecoding(what, settings.consumer, context)
  need(manifest, manifest.groups, { owner: what, what: "consumer groups" })
  if (settings.group.memberId !== undefined) {
    need(manifest, manifest.staticMembers, { owner: `${what}: option "memberId"`, what: "members with a stable name" })
  }
  const topics = distinct([source.topic, ...settings.group.topics])
  const join = (): Promise<Membership> => joinGroup(context, { group, topics }, settings.group)
  const { initRetries: retries, initRetryIntervalMs: intervalMs } = settings.consumer
  const records = settings.group.applyFilter ? new GroupRecords(context, { group, topics }) : undefined
  const membership = await retried(context, { retries, intervalMs }, async () => {
    await records?.load()
    return join()
  })
  const consumer = await opened(
    membership,
    () =>
      new LogConsumer(
        context,
        { what, owner: { kind: "group", name: group }, partition: undefined, ...(records && { records }) },
        settings.consumer,
      ),
  )
  const member = new GroupMember(consumer, { clock: context.clock, join }, memberSettings(settings))
  consumer.joined(member)
  records?.follow({
    reselected: (changed) => consumer.reselect(changed),
    failed: (error) => consumer.fail(error),
  })
  try {
    await member.begin(membership)
  } catch (error) {
    // The reason why the consumer did not come to be counts for more than what its end may fail with.
    await consumer.shutdown().catch(() => {})
    throw error
  }
  return consumer
}

/** A client that was closed meanwhile owns nothing more: the group is left again. */
async function opened(membership: Membership, open: () => LogConsumer): Promise<LogConsumer> {
  try {
    return open()
  } catch (error) {
    await membership.leave().catch(() => {})
    throw error
  }
}

function memberSettings(settings: {
  readonly consumer: ConsumerSettings
  readonly group: GroupSettings
}): MemberSettings {
  const { onMissing, retryIntervalMs } = settings.consumer
  const { onRevoke, revokeTimeoutMs, handlerTimeoutMs } = settings.group
  return { onMissing, retryIntervalMs, onRevoke, revokeTimeoutMs, handlerTimeoutMs }
}

function distinct(topics: readonly TopicName[]): TopicName[] {
  return [...new Map(topics.map((topic) => [topicKey(topic), topic])).values()]
}
