import { type Manifest, UnsupportedError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { OptionReader } from "../client/options.ts"
import { type RetentionOptions, type TopicOptions, topicSpec } from "../client/topic-options.ts"
import type { PublisherSettings } from "./publisher.ts"
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
  /** Most records of one request. Default 1,000. */
  readonly batchLength?: number
  /**
   * The least gap in ms between the end of one send and the start of the next. Default 0. It collects nothing, and a send that comes
   * later than that after the last one is not delayed.
   */
  readonly lingerMs?: number
  /**
   * Whether requests carry a producer identity, so that the backend keeps order and stores a resend once. Default: where the backend
   * has it. `true` is refused where it has not.
   */
  readonly idempotent?: boolean
  /**
   * What happens to a request whose outcome is unknown. `resend` (default): it goes out again within its retries; doubled only on a
   * backend without deduplication or with `idempotent: false`. `fail`: it fails with outcome `unknown`.
   */
  readonly onUnknown?: "resend" | "fail"
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
]

/** @throws InvalidError for unknown keys, values out of range and contradictions; UnsupportedError for what the backend lacks */
export function checkProducerOptions(
  owner: string,
  options: ProducerOptions | undefined,
  client: ClientContext,
): { readonly settings: PublisherSettings; readonly route: Route } {
  const read = new OptionReader<ProducerOptions>(owner, options, known)
  const { manifest } = client.session
  const createTopic = read.flag("createTopic", true)
  const spec = topicSpec(
    owner,
    { partitions: read.whole("partitions", { min: 1, fallback: 1 }), options: retention(options) },
    manifest,
  )
  const settings: PublisherSettings = {
    owner,
    batchLength: read.whole("batchLength", { min: 1, fallback: 1000 }),
    lingerMs: read.duration("lingerMs", { zero: true, fallback: 0 }),
    retries: read.whole("retries", { min: 0, fallback: client.publish.retries }),
    retryBackoffMs: read.duration("retryBackoffMs", { fallback: client.publish.retryBackoffMs }),
    idempotent: idempotence(owner, read.flag("idempotent", true), { asked: options?.idempotent, manifest }),
    onUnknown: read.choice("onUnknown", ["resend", "fail"], "resend"),
    partitioner: read.callback<Partitioner>("partitioner"),
    creation: { stream: read.flag("createStream", true), topic: createTopic ? spec : undefined },
  }
  return { settings, route: checkRouting(options?.routing, manifest.limits) }
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
