import { InvalidError, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { checkName, topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import { isEncrypted } from "../encryption/sealing.ts"
import { checkOnReadEncryption } from "../progress/commit-policy.ts"
import { checkDecoding, type Decoding } from "../typed/decoding.ts"
import { type ConsumerOptions, consumerSettings } from "./consumer-options.ts"
import { LogConsumer } from "./log-consumer.ts"

/**
 * A consumer of one partition (`topic.consumer`, seed 000). Nothing is asked of the backend before the first read; a topic or a
 * partition that does not exist is told there.
 * @param name Under which progress is stored. Without one the consumer is alone with its progress, and stores nothing.
 * @throws InvalidError for an option, a name or a partition number that cannot be right.
 */
export function openConsumer(
  context: ClientContext,
  source: {
    readonly topic: TopicName
    readonly name: string | undefined
    readonly partition: number
    readonly decoding?: Decoding | undefined
  },
  options?: ConsumerOptions,
): LogConsumer {
  const { topic, name, partition, decoding } = source
  const called = name === undefined ? "the unnamed consumer" : `consumer ${shown(name)}`
  const what = `${called} of topic "${topicText(topic)}"`
  if (name !== undefined) checkName("consumer", name, context.session.manifest.limits)
  if (!Number.isInteger(partition) || partition < 0) {
    throw new InvalidError(`${what}: a partition must be a whole number from 0, not ${shown(partition)}`)
  }
  const settings = { ...consumerSettings(what, options, { stores: name !== undefined }), decoding }
  checkOnReadEncryption(what, settings.commitPolicy, { encrypted: isEncrypted(context, settings.encryptor) })
  checkDecoding(what, settings, context)
  const owner = name === undefined ? undefined : ({ kind: "consumer", name } as const)
  return new LogConsumer(context, { what, owner, partition: { ...topic, partition } }, settings)
}
