import { InvalidError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { checkName } from "../client/names.ts"
import { OptionReader, pickOptions, shown } from "../client/options.ts"
import { need } from "../client/topic-options.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { checkProducerOptions, type ProducerOptions } from "../producer/producer-options.ts"
import type { PublisherSettings } from "../producer/publisher.ts"
import type { Route } from "../producer/routing.ts"

/** What of a producer's options a transactional one takes too. */
type Shared = Pick<
  ProducerOptions,
  | "routing"
  | "partitioner"
  | "retries"
  | "retryBackoffMs"
  | "createStream"
  | "createTopic"
  | "partitions"
  | "expireAfterMs"
  | "neverExpire"
  | "maxTopicBytes"
  | "unlimitedTopicSize"
  | "compression"
  | "encryptor"
>

/** Options of `client.transactionalProducer` (seed 004; table 5.1). `retries` and `retryBackoffMs` hold for ending a transaction too. */
export interface TransactionalOptions extends Shared {
  /** What incarnations of the same producer have in common, across processes and restarts: each `init` fences those before. */
  readonly transactionalId: string
  /** An open transaction that takes longer is aborted by the backend, in ms. Default 60,000. A prepared one has no such bound. */
  readonly timeoutMs?: number
  /** How long `commit`, `prepare` and `abort` wait for records that are on their way, in ms. Default 50,000. */
  readonly flushTimeoutMs?: number
  /** Records go out when so many were added to a topic, 1 or more; no request has more. Default 1,000. */
  readonly batchLength?: number
  /** Records go out at so many bytes. Default 1 MiB. */
  readonly batchBytes?: number
  /** Or so long after the first of them, in ms: what is added meanwhile goes along. Default 5. */
  readonly lingerMs?: number
  /** Bytes of records that may be on their way; a send beyond that waits. Default 32 MiB. */
  readonly maxBufferBytes?: number
  /** Only true is possible: a resend within a transaction has to be recognised. */
  readonly idempotent?: true
}

/** Options after the checks. */
export interface TransactionalSettings {
  readonly what: string
  readonly transactionalId: string
  readonly timeoutMs: number
  readonly flushTimeoutMs: number
  readonly batchLength: number
  readonly batchBytes: number
  readonly lingerMs: number
  readonly maxBufferBytes: number
  readonly route: Route
  /** Absent: the client's. */
  readonly encryptor: Encryptor | false | undefined
  readonly publisher: PublisherSettings
}

const sharedKeys: readonly (keyof Shared)[] = [
  "routing",
  "partitioner",
  "retries",
  "retryBackoffMs",
  "createStream",
  "createTopic",
  "partitions",
  "expireAfterMs",
  "neverExpire",
  "maxTopicBytes",
  "unlimitedTopicSize",
  "compression",
  "encryptor",
]

const ownKeys: readonly (keyof TransactionalOptions)[] = [
  "transactionalId",
  "timeoutMs",
  "flushTimeoutMs",
  "batchLength",
  "batchBytes",
  "lingerMs",
  "maxBufferBytes",
  "idempotent",
]

const mebibyte = 1_048_576

/** @throws InvalidError for unknown keys and values out of range; UnsupportedError where the backend has no transactions */
export function checkTransactionalOptions(options: TransactionalOptions, client: ClientContext): TransactionalSettings {
  const { manifest } = client.session
  const id = checkedId(options?.transactionalId, client)
  const what = `transactional producer ${shown(id)}`
  const read = new OptionReader<TransactionalOptions>(what, options, [...ownKeys, ...sharedKeys])
  need(manifest, manifest.transactions, { owner: what, what: "transactions" })
  refuseDoubles(what, options)
  const batchLength = read.whole("batchLength", { min: 1, fallback: 1000 })
  const batchBytes = read.whole("batchBytes", { min: 1, fallback: mebibyte })
  const { publisher, route, encryptor } = checkProducerOptions(
    what,
    pickOptions<ProducerOptions>(options, sharedKeys),
    client,
  )
  return {
    what,
    transactionalId: id,
    timeoutMs: read.duration("timeoutMs", { fallback: 60_000 }),
    flushTimeoutMs: read.duration("flushTimeoutMs", { fallback: 50_000 }),
    batchLength,
    batchBytes,
    lingerMs: read.duration("lingerMs", { zero: true, fallback: 5 }),
    maxBufferBytes: read.whole("maxBufferBytes", { min: 1, max: Number.MAX_SAFE_INTEGER, fallback: 32 * mebibyte }),
    route,
    encryptor,
    publisher: {
      ...publisher,
      batchRecords: batchLength,
      batchBytes,
      lingerMs: 0,
      idempotent: true,
      onUnknown: "resend",
      confirm: "stored",
      release: "due",
    },
  }
}

function checkedId(id: unknown, client: ClientContext): string {
  if (typeof id === "string") return checkName("transactional id", id, client.session.manifest.limits)
  throw new InvalidError(
    `transactionalProducer: option "transactionalId" is ${shown(id)}; it must be a text: the name that incarnations of this producer share`,
  )
}

function refuseDoubles(what: string, { idempotent }: { readonly idempotent?: unknown }): void {
  if (idempotent === undefined || idempotent === true) return
  throw new InvalidError(
    `${what}: option "idempotent" is ${shown(idempotent)}; it must be true, or absent: a resend within a transaction has to be recognised`,
  )
}
