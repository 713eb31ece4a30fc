import { type Compression, type Headers, InvalidError, type Manifest, UnsupportedError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { OptionReader, shown } from "../client/options.ts"
import { type RetentionOptions, type TopicOptions, topicSpec } from "../client/topic-options.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { checkEncryptorChoice } from "../encryption/sealing.ts"
import type { SpoolSettings } from "../spool/spool-options.ts"
import { type BackgroundOptions, type BackgroundSettings, checkBackgroundOptions } from "./background-options.ts"
import { directSending, type PublisherSettings } from "./publisher.ts"
import { checkRouting, type Partitioner, type Route, type Routing } from "./routing.ts"

/** Settings of a direct producer (seed 000, "Direct producer"; table 1.1 of the options). */
export interface ProducerOptions extends RetentionOptions {
  /** Where records go unless a send says otherwise. Default: balanced. */
  readonly routing?: Routing
  /** Chooses the partition of every record without an explicit one, in place of keys and balance. */
  readonly partitioner?: Partitioner
  /** How often a request is sent again after a temporary failure. Default: the connection's `publishRetries`. */
  readonly retries?: number
  /** The wait before the first resend in ms, above 0; doubled for each further one, at most 30 s. Default: the connection's. */
  readonly retryBackoffMs?: number
  /** Whether a missing stream is created at the first use. Default true. */
  readonly createStream?: boolean
  /** Whether a missing topic is created at the first use. Default true. A topic that is deleted later is not created again. */
  readonly createTopic?: boolean
  /** Of a topic that is created. Default 1. */
  readonly partitions?: number
  /** Most records of one request, 1 or more. Default 1,000. In background mode `background.batchLength` counts instead. */
  readonly batchLength?: number
  /**
   * The least gap in ms between the end of one send and the start of the next. Default 0. It collects nothing, and a send that comes
   * later than that after the last one is not delayed. Not used in background mode, which has a linger of its own.
   */
  readonly lingerMs?: number
  /**
   * Whether requests carry a producer identity, so that the backend keeps order and stores a resend once. Default: where the backend
   * has it. `true` is refused where it has not.
   */
  readonly idempotent?: boolean
  /**
   * What happens to a request whose outcome is unknown. `resend`: it goes out again within its retries; doubled only on a backend
   * without deduplication or with `idempotent: false`. `fail`: it fails with outcome `unknown`. Default: `resend`; of a background
   * producer `fail` where a resend could double.
   */
  readonly onUnknown?: "resend" | "fail"
  /** What payloads and headers are encrypted with; `false` sends them as they are. Default: the client's. */
  readonly encryptor?: Encryptor | false
  /**
   * What its batches are compressed with (table 5.1 of the options); readers need not know. Worth it for records of a kind in large
   * batches. Default: the connection's, which is none unless its URL says otherwise. Refused where the manifest's `append.compression`
   * lacks it.
   */
  readonly compression?: Compression
  /** Queues sends and writes them from lanes: see `BackgroundOptions`; `true` takes its defaults. Default: a direct producer. */
  readonly background?: true | BackgroundOptions
}

const known: readonly (keyof ProducerOptions)[] = [
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
  "batchLength",
  "lingerMs",
  "idempotent",
  "onUnknown",
  "compression",
  "encryptor",
  "background",
]

/** Producer options after the checks. */
export interface ProducerSettings {
  readonly publisher: PublisherSettings
  readonly route: Route
  /** Absent: the client's. */
  readonly encryptor: Encryptor | false | undefined
  /** Absent: a direct producer. */
  readonly background: BackgroundSettings | undefined
  /** Of a typed producer: see `PrepareOptions.own`. */
  readonly ownHeaders?: Headers | undefined
}

/** @throws InvalidError for unknown keys, values out of range and contradictions; UnsupportedError for what the backend lacks */
export function checkProducerOptions(
  owner: string,
  options: ProducerOptions | undefined,
  client: ClientContext,
): ProducerSettings {
  const read = new OptionReader<ProducerOptions>(owner, options, known)
  const { manifest } = client.session
  const createTopic = read.flag("createTopic", true)
  const spec = topicSpec(
    owner,
    { partitions: read.whole("partitions", { min: 1, fallback: 1 }), options: retention(options) },
    manifest,
  )
  const background = options?.background === undefined ? undefined : checkBackgroundOptions(owner, options.background)
  const batchLength = read.whole("batchLength", { min: 1, fallback: 1000 })
  const lingerMs = read.duration("lingerMs", { zero: true, fallback: 0 })
  const idempotent = idempotence(owner, read.flag("idempotent", true), { asked: options?.idempotent, manifest })
  const recognised = idempotent && manifest.append.dedup !== "none"
  if (background?.spool !== undefined) refuseLimits(owner, options)
  const publisher: PublisherSettings = {
    owner,
    ...(background === undefined
      ? { ...directSending, batchRecords: batchLength, lingerMs }
      : backgroundSending(background)),
    retries: read.whole("retries", { min: 0, fallback: client.publish.retries }),
    retryBackoffMs: read.duration("retryBackoffMs", { fallback: client.publish.retryBackoffMs }),
    idempotent,
    onUnknown: read.choice("onUnknown", ["resend", "fail"], background === undefined || recognised ? "resend" : "fail"),
    compression: compression(owner, options?.compression, manifest),
    partitioner: read.callback<Partitioner>("partitioner"),
    creation: { stream: read.flag("createStream", true), topic: createTopic ? spec : undefined },
    ...(background?.spool === undefined ? {} : spoolSending(background, background.spool)),
  }
  return {
    publisher,
    route: checkRouting(options?.routing, manifest.limits),
    encryptor: checkEncryptorChoice(owner, options?.encryptor),
    background,
  }
}

/** How a lane sends: batches linger until it is flushed, and confirmations need not tell offsets. */
function backgroundSending({ batchBytes, maxInFlight }: BackgroundSettings) {
  return {
    batchRecords: Number.POSITIVE_INFINITY,
    batchBytes,
    lingerMs: 0,
    maxInFlight,
    confirm: "stored",
    release: "due",
    resends: "background",
  } as const
}

/** How records leave a spool: until the backend has them. */
function spoolSending({ batchLength, batchBytes, maxInFlight }: BackgroundSettings, { onExpired }: SpoolSettings) {
  return {
    ...directSending,
    batchRecords: batchLength,
    batchBytes,
    maxInFlight,
    retries: Number.POSITIVE_INFINITY,
    onUnknown: "resend",
    onExpired: onExpired === "report" ? "fail" : "resend",
  } as const
}

/** A spool tries until the backend takes a record or refuses it: what says otherwise would be a promise that it does not keep. */
function refuseLimits(owner: string, options: ProducerOptions | undefined): void {
  if (options?.retries !== undefined) {
    throw new InvalidError(
      `${owner}: option "retries" and a spool exclude each other: what is in a spool is sent until the backend has it`,
    )
  }
  if (options?.onUnknown === "fail") {
    throw new InvalidError(
      `${owner}: onUnknown "fail" and a spool exclude each other: use the spool's onExpired "report"`,
    )
  }
}

function retention(options: ProducerOptions | undefined): TopicOptions {
  const { expireAfterMs, neverExpire, maxTopicBytes, unlimitedTopicSize } = options ?? {}
  return {
    ...(expireAfterMs === undefined ? {} : { expireAfterMs }),
    ...(neverExpire === undefined ? {} : { neverExpire }),
    ...(maxTopicBytes === undefined ? {} : { maxTopicBytes }),
    ...(unlimitedTopicSize === undefined ? {} : { unlimitedTopicSize }),
  }
}

function idempotence(
  owner: string,
  wanted: boolean,
  context: { readonly asked: boolean | undefined; readonly manifest: Manifest },
): boolean {
  const { append, backend } = context.manifest
  if (context.asked === true && append.dedup === "none") {
    throw new UnsupportedError(
      `${owner}: option "idempotent" cannot be true: ${backend} does not recognise resends. Leave it out; a resend may then double`,
    )
  }
  return wanted
}

const codecs: readonly Compression[] = ["none", "gzip", "snappy", "lz4", "zstd"]

function compression(owner: string, asked: unknown, { append, backend }: Manifest): Compression | undefined {
  if (asked === undefined) return undefined
  const codec = codecs.find((name) => name === asked)
  const list = (names: readonly Compression[]): string => names.map((name) => `"${name}"`).join(", ")
  if (codec === undefined) {
    throw new InvalidError(`${owner}: option "compression" is ${shown(asked)}; it must be one of ${list(codecs)}`)
  }
  if (append.compression.includes(codec)) return codec
  throw new UnsupportedError(
    `${owner}: option "compression": ${backend} does not compress with "${codec}"; it has ${list(append.compression)}. Leave it out, or compress payloads before they are sent`,
  )
}
