import { InvalidError } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { checkEncryptorChoice } from "../encryption/sealing.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"

/** What a dead letter needs of the topic that it goes to: a topic handle has it. */
export interface DeadLetterTopic {
  readonly stream: string
  readonly name: string
  ensure(partitions?: number): Promise<unknown>
  batch(records: readonly OutgoingRecord[], options?: { readonly encryptor?: Encryptor | false }): Promise<unknown>
}

/** Options of `deadLetter`. */
export interface DeadLetterOptions {
  /** Creates the topic when it does not exist, at the first dead letter. Default true. */
  readonly createTopic?: boolean
  /** Of a topic that is created. Default 1. */
  readonly partitions?: number
  /** What dead letters are encrypted with; `false` sends them as the handler saw them. Default: what the consumer decrypts with. */
  readonly encryptor?: Encryptor | false
}

/** A place for messages that cannot be handled, as `onFailure` takes it. Made by `deadLetter`. */
export interface DeadLetterPolicy {
  readonly kind: "deadLetter"
  readonly topic: DeadLetterTopic
  readonly createTopic: boolean
  readonly partitions: number
  /** Absent: the consumer's. */
  readonly encryptor: Encryptor | false | undefined
}

const mostPartitions = 1_000_000

/**
 * For `onFailure` of `consumer.run`, and for `deadLetter` of a work queue: a message whose last attempt failed is sent to a topic, with its
 * payload, key and headers, and with headers that tell where it stood and why it failed. Once that is confirmed the message counts as
 * handled, or is taken out of the queue. `redrive` sends it back.
 * @throws InvalidError for what is no topic handle, or an option out of its range
 */
export function deadLetter(topic: DeadLetterTopic, options?: DeadLetterOptions): DeadLetterPolicy {
  if (typeof topic?.batch !== "function" || typeof topic.ensure !== "function" || typeof topic.name !== "string") {
    throw new InvalidError(`deadLetter takes a topic handle, as client.topic() gives it, not ${shown(topic)}`)
  }
  const owner = `deadLetter to ${shown(topic.name)}`
  const reader = new OptionReader<DeadLetterOptions>(owner, options, ["createTopic", "partitions", "encryptor"])
  return Object.freeze({
    kind: "deadLetter" as const,
    topic,
    createTopic: reader.flag("createTopic", true),
    partitions: reader.whole("partitions", { min: 1, max: mostPartitions, fallback: 1 }),
    encryptor: checkEncryptorChoice(owner, options?.encryptor),
  })
}

/** Whether an option is what `deadLetter` gives. */
export function isDeadLetterPolicy(value: unknown): value is DeadLetterPolicy {
  return typeof value === "object" && value !== null && (value as Partial<DeadLetterPolicy>).kind === "deadLetter"
}
