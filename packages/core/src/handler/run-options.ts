/** What `consumer.run` can be told, its defaults and its checks. */
import { InvalidError, type MillraceError } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import { type DeadLetterPolicy, isDeadLetterPolicy } from "./dead-letter.ts"
import { type Retry, retryOf } from "./retry.ts"

/**
 * What has to stay in order while handlers run at the same time: messages of one partition; messages of one key in a partition, and
 * those without a key; or nothing.
 */
export type HandlerOrder = "partition" | "key" | "none"

/** Options of `consumer.run`. */
export interface RunOptions {
  /** The most handlers that run at the same time, 1 to 10,000. Default 1. */
  readonly concurrency?: number
  /** Default `"partition"`. */
  readonly order?: HandlerOrder
  /** How often a message is tried whose handler fails. Default: once. */
  readonly retry?: RetryOptions
  /**
   * What becomes of a message whose last attempt failed, and of a record that cannot be read. `"stop"` (default): nothing more starts,
   * and `run` rejects. `"skip"`: it counts as handled. `deadLetter(topic)`: it is sent there, and then counts as handled.
   */
  readonly onFailure?: "stop" | "skip" | DeadLetterPolicy
  /**
   * Told of each attempt that failed, and of what comes next. When it throws, the run stops with what it threw.
   */
  readonly onError?: (error: MillraceError, next: "retry" | "skip" | "deadLetter" | "stop") => void
  /**
   * How far a partition may be taken ahead of its oldest message that is not handled, in messages, 1 to 1,000,000: what a slow message
   * may leave behind it, and what a crash may repeat. Default 1000, or 16 × `concurrency` when that is more.
   */
  readonly maxAhead?: number
  /** How long running handlers get to finish once the run ends for any reason but a shutdown, in ms. Default 30,000. */
  readonly drainTimeoutMs?: number
  /** Ends the run with CancelledError once the running handlers have finished. */
  readonly signal?: AbortSignal
}

/** Attempts of one message, with waits between them that double. The partition or key of a message that waits is held, as `order` says. */
export interface RetryOptions {
  /** In all, the first included; 1 to 1,000,000. Default 3. */
  readonly attempts?: number
  /** The wait before the second attempt, in ms; it doubles from then on. Half of each wait is random. Default 100. */
  readonly backoffMs?: number
  /** The longest wait, in ms. Default 30,000. */
  readonly maxBackoffMs?: number
}

/** Run options after the checks. */
export interface RunSettings {
  readonly concurrency: number
  readonly order: HandlerOrder
  readonly retry: Retry
  readonly onFailure: "stop" | "skip" | DeadLetterPolicy
  readonly onError: RunOptions["onError"]
  readonly maxAhead: number
  readonly drainTimeoutMs: number
  readonly signal: AbortSignal | undefined
}

const runKeys = [
  "concurrency",
  "order",
  "retry",
  "onFailure",
  "onError",
  "maxAhead",
  "drainTimeoutMs",
  "signal",
] as const

const mostHandlers = 10_000
const farthestAhead = 1_000_000

/**
 * @param what How errors call the run: the consumer.
 * @throws InvalidError for an unknown option, or a value out of its range
 */
export function checkRunOptions(what: string, options: RunOptions | undefined): RunSettings {
  const owner = `${what}: run`
  const reader = new OptionReader<RunOptions>(owner, options, runKeys)
  const concurrency = reader.whole("concurrency", { min: 1, max: mostHandlers, fallback: 1 })
  return {
    concurrency,
    order: reader.choice("order", ["partition", "key", "none"], "partition"),
    retry: retryOf(owner, options?.retry),
    onFailure: checkFailurePolicy(owner, options?.onFailure),
    onError: reader.callback("onError"),
    maxAhead: reader.whole("maxAhead", { min: 1, max: farthestAhead, fallback: Math.max(1000, 16 * concurrency) }),
    drainTimeoutMs: reader.duration("drainTimeoutMs", { zero: true, fallback: 30_000 }),
    signal: checkSignal(owner, options?.signal),
  }
}

function checkFailurePolicy(owner: string, value: RunOptions["onFailure"]): RunSettings["onFailure"] {
  if (value === undefined) return "stop"
  if (value === "stop" || value === "skip" || isDeadLetterPolicy(value)) return value
  throw new InvalidError(
    `${owner}: option "onFailure" is ${shown(value)}; it must be "stop", "skip" or what deadLetter(topic) gives`,
  )
}

function checkSignal(owner: string, value: AbortSignal | undefined): AbortSignal | undefined {
  if (value === undefined || value instanceof AbortSignal) return value
  throw new InvalidError(`${owner}: option "signal" is ${shown(value)}; it must be an AbortSignal`)
}
