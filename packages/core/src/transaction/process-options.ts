import { InvalidError, type MillraceError, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { checkName, topicText } from "../client/names.ts"
import { OptionReader, pickOptions, shown } from "../client/options.ts"
import { need } from "../client/topic-options.ts"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import type { DeadLetterPolicy } from "../handler/dead-letter.ts"
import type { HandlerContext } from "../handler/handler-context.ts"
import type { Retry } from "../handler/retry.ts"
import { checkRunOptions, type RetryOptions, type RunOptions } from "../handler/run-options.ts"
import { nameOf, type TopicRef } from "../producer/producer.ts"
import type { Message } from "../record/message.ts"
import type { TypedMessage } from "../typed/typed-message.ts"
import { TypedTopic } from "../typed/typed-topic.ts"
import type { ProcessOutput } from "./process-output.ts"
import {
  checkTransactionalOptions,
  type TransactionalOptions,
  type TransactionalSettings,
} from "./transactional-options.ts"

/** What a processor reads, and as what. */
export interface ProcessInput<T extends TopicRef>
  extends Pick<
    GroupConsumerOptions,
    | "startAt"
    | "topics"
    | "createGroup"
    | "memberId"
    | "sessionTimeoutMs"
    | "rebalanceTimeoutMs"
    | "revokeTimeoutMs"
    | "onRevoke"
    | "onOutOfRange"
    | "onMissing"
    | "maxWaitMs"
    | "maxBytes"
    | "prefetchBytes"
    | "encryptor"
    | "applyFilter"
  > {
  /** A topic, or a typed one: the handler then gets values. */
  readonly topic: T
  /** The consumer group that shares the topic's partitions, whose stored progress is what is processed. */
  readonly group: string
}

/** What a handler of `process` gets for a topic: its messages, with a value where the topic is typed. */
export type ProcessMessage<T extends TopicRef> = T extends TypedTopic<infer V> ? TypedMessage<V> : Message

/** What a handler of `process` gets beside its message. */
export type ProcessContext = HandlerContext

/** What a handler of `process` may answer: nothing, one output, or several in an array, in the order in which they are stored. */
export type ProcessOutputs<O> = ProcessOutput<O> | readonly ProcessOutput<O>[] | undefined

/** The outputs' values: those of a typed topic, else bytes; without a topic each output names its own. */
export type ProcessValue<T extends TopicRef | undefined> =
  T extends TypedTopic<infer V> ? V : T extends TopicRef ? Uint8Array : never

/** May be async. Its bytes are read until the transaction has committed: it must not write to them again. */
export type ProcessHandler<I extends TopicRef, O extends TopicRef | undefined> = (
  message: ProcessMessage<I>,
  context: ProcessContext,
) => ProcessOutputs<ProcessValue<O>> | Promise<ProcessOutputs<ProcessValue<O>>>

/** Options of `client.process`. Those of the producer have the meaning that they have there. */
export interface ProcessOptions<I extends TopicRef = TopicRef, O extends TopicRef | undefined = TopicRef | undefined>
  extends Pick<
    TransactionalOptions,
    | "routing"
    | "partitioner"
    | "retries"
    | "retryBackoffMs"
    | "flushTimeoutMs"
    | "createStream"
    | "createTopic"
    | "partitions"
    | "compression"
    | "encryptor"
  > {
  readonly from: ProcessInput<I>
  /** Where outputs go that say nothing else. Absent: each output names its topic. A typed topic encodes their values. */
  readonly to?: O
  readonly handler: ProcessHandler<I, O>
  /**
   * A name for the transactions of this processor alone. Default: one of its own, from the topic, the group and, where there is one, the `memberId`.
   * Two processors with the same name fence each other: the older one ends with FencedError.
   */
  readonly transactionalId?: string
  /** The most messages of one transaction, from 1. Default 5,000. */
  readonly batchLength?: number
  /** The most bytes of outputs of one transaction; what one message makes is never parted. Default 8 MiB. */
  readonly batchBytes?: number
  /** How long a message that was handled waits for others to be committed with it, in ms. Default 1,000. It does not wait when nothing comes. */
  readonly maxTransactionMs?: number
  /** How long sending and committing one batch may take before the backend aborts it, in ms. Default 10,000. Handlers run outside of it. */
  readonly timeoutMs?: number
  /** How often a message is tried whose handler fails. Default: once. */
  readonly retry?: RetryOptions
  /**
   * What becomes of a message whose last attempt failed, and of a record that cannot be read. `"stop"` (default): what was handled before
   * is committed, and `done` rejects. `"skip"`: it counts as processed, without outputs. `deadLetter(topic)`: its dead letter is part of
   * the transaction.
   */
  readonly onFailure?: "stop" | "skip" | DeadLetterPolicy
  /** Told of each attempt that failed, and of what comes next. When it throws, the processor ends with what it threw. */
  readonly onError?: (error: MillraceError, next: "retry" | "skip" | "deadLetter" | "stop") => void
  /** Ends the processor as `shutdown` does; `done` then rejects with CancelledError. */
  readonly signal?: AbortSignal
}

/** Options after the checks. */
export interface ProcessSettings {
  /** How errors call the processor. */
  readonly what: string
  readonly topic: TopicName
  readonly group: string
  /** Absent: the handler gets messages as they are. */
  readonly typed: TypedTopic<unknown> | undefined
  readonly consumer: GroupConsumerOptions
  readonly to: TopicRef | undefined
  readonly batchLength: number
  readonly batchBytes: number
  readonly maxTransactionMs: number
  readonly retry: Retry
  readonly onFailure: "stop" | "skip" | DeadLetterPolicy
  readonly onError: ProcessOptions["onError"]
  readonly signal: AbortSignal | undefined
  readonly producer: TransactionalSettings
  /** Whether the transactional id is this processor's alone, so that whoever fenced it was the backend. */
  readonly ownId: boolean
}

const inputKeys = [
  "startAt",
  "topics",
  "createGroup",
  "memberId",
  "sessionTimeoutMs",
  "rebalanceTimeoutMs",
  "revokeTimeoutMs",
  "onRevoke",
  "onOutOfRange",
  "onMissing",
  "maxWaitMs",
  "maxBytes",
  "prefetchBytes",
  "encryptor",
  "applyFilter",
] as const satisfies readonly (keyof GroupConsumerOptions)[]

const producerKeys = [
  "routing",
  "partitioner",
  "retries",
  "retryBackoffMs",
  "flushTimeoutMs",
  "createStream",
  "createTopic",
  "partitions",
  "compression",
  "encryptor",
] as const satisfies readonly (keyof TransactionalOptions)[]

const runKeys = ["retry", "onFailure", "onError", "signal"] as const satisfies readonly (keyof RunOptions)[]

const ownKeys = [
  "from",
  "to",
  "handler",
  "transactionalId",
  "batchLength",
  "batchBytes",
  "maxTransactionMs",
  "timeoutMs",
  ...runKeys,
] as const

const largestBatch = 100_000
const mebibyte = 1_048_576
/** Progress over records of which none is handed out is stored at the latest so long after they were read, in ms. */
const scannedMs = 1000

/** @throws InvalidError for an option, UnsupportedError where the backend has no groups, or no transactions that hold offsets */
export function checkProcessOptions(client: ClientContext, options: ProcessOptions): ProcessSettings {
  const { manifest } = client.session
  const read = new OptionReader<ProcessOptions>("process", options, [...ownKeys, ...producerKeys])
  const from = checkedInput(options.from)
  const topic = nameOfInput(from.topic, client)
  const group = checkName("group", from.group, manifest.limits)
  const what = `processor of group ${shown(group)} on topic "${topicText(topic)}"`
  need(manifest, manifest.transactions, { owner: what, what: "transactions" })
  const { transactions } = manifest
  if (transactions.supported) need(manifest, transactions.offsets, { owner: what, what: "offsets in transactions" })
  need(manifest, manifest.groups, { owner: what, what: "consumer groups" })
  if (typeof options.handler !== "function") {
    throw new InvalidError(
      `${what}: option "handler" is ${shown(options.handler)}; it must be a function that gets a message`,
    )
  }
  const to = options.to === undefined ? undefined : refOf(what, options.to, client)
  const batchLength = read.whole("batchLength", { min: 1, max: largestBatch, fallback: 5000 })
  const { retry, onFailure, onError, signal } = checkRunOptions(what, pickOptions<RunOptions>(options, runKeys))
  const { transactionalId } = options
  return {
    what,
    topic,
    group,
    typed: from.topic instanceof TypedTopic ? (from.topic as TypedTopic<unknown>) : undefined,
    consumer: {
      ...pickOptions<GroupConsumerOptions>(from, inputKeys),
      batchLength,
      prefetchRecords: Math.max(16_000, 4 * batchLength),
      commitPolicy: { kind: "auto", after: "marked", every: false, intervalMs: scannedMs },
    },
    to,
    batchLength,
    batchBytes: read.whole("batchBytes", { min: 1, fallback: 8 * mebibyte }),
    maxTransactionMs: read.duration("maxTransactionMs", { fallback: 1000 }),
    retry,
    onFailure,
    onError,
    signal,
    producer: checkTransactionalOptions(
      {
        ...pickOptions<TransactionalOptions>(options, producerKeys),
        transactionalId: transactionalId ?? derivedId(client, { topic, group, memberId: from.memberId }),
        timeoutMs: read.duration("timeoutMs", { fallback: 10_000 }),
      },
      client,
    ),
    ownId: transactionalId === undefined,
  }
}

/**
 * `process/<stream>/<topic>/<group>/<member>`, since a group is one of its topic: a member with a name of its own takes its place back at once; another one has a name that nobody else has, and what
 * it leaves behind is aborted after `timeoutMs`. The group's claims keep two members from committing the same messages (KIP-447).
 */
function derivedId(
  { random, session }: ClientContext,
  { topic, group, memberId }: { readonly topic: TopicName; readonly group: string; readonly memberId: unknown },
): string {
  const fresh = (): string => Array.from({ length: 4 }, () => random.uint32().toString(16).padStart(8, "0")).join("")
  const member = typeof memberId === "string" ? memberId : fresh()
  const name = ["process", topic.stream, topic.topic, group, member]
    .map((part) => encodeURIComponent(part.toWellFormed()))
    .join("/")
  const { nameBytes } = session.manifest.limits
  return new TextEncoder().encode(name).length <= nameBytes ? name : `process/${fresh()}`
}

function checkedInput(from: unknown): ProcessInput<TopicRef> {
  new OptionReader<ProcessInput<TopicRef>>("process: from", from as ProcessInput<TopicRef> | undefined, [
    "topic",
    "group",
    ...inputKeys,
  ])
  if (from !== undefined) return from as ProcessInput<TopicRef>
  throw new InvalidError(
    'process: option "from" is missing: it says which topic is read, and as which group: { topic, group }',
  )
}

function nameOfInput(topic: TopicRef, client: ClientContext): TopicName {
  if (typeof topic === "object" && topic !== null) return nameOf(topic, client.session.manifest)
  throw new InvalidError(
    `process: from.topic is ${shown(topic)}; it must be a topic handle, as client.topic() gives it`,
  )
}

function refOf(what: string, to: TopicRef, client: ClientContext): TopicRef {
  if (typeof to !== "object" || to === null) {
    throw new InvalidError(
      `${what}: option "to" is ${shown(to)}; it must be a topic handle, as client.topic() gives it`,
    )
  }
  nameOf(to, client.session.manifest)
  return to
}
