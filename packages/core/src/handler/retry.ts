import type { Random } from "@millrace/runtime"
import { backoffMs } from "@millrace/runtime"
import { OptionReader } from "../client/options.ts"
import type { RetryOptions } from "./run-options.ts"

/** How often and after which waits a message is tried again. Pure. */
export interface Retry {
  /** In all, the first one included. */
  readonly attempts: number
  readonly backoffMs: number
  readonly maxBackoffMs: number
}

const mostAttempts = 1_000_000

/** @throws InvalidError for an unknown option, or a value out of its range */
export function retryOf(owner: string, options: RetryOptions | undefined): Retry {
  if (options === undefined) return { attempts: 1, backoffMs: 0, maxBackoffMs: 0 }
  const reader = new OptionReader<RetryOptions>(`${owner}: retry`, options, ["attempts", "backoffMs", "maxBackoffMs"])
  return {
    attempts: reader.whole("attempts", { min: 1, max: mostAttempts, fallback: 3 }),
    backoffMs: reader.duration("backoffMs", { zero: true, fallback: 100 }),
    maxBackoffMs: reader.duration("maxBackoffMs", { zero: true, fallback: 30_000 }),
  }
}

/**
 * The wait before the next attempt, in ms; absent when there is none: the attempts are used up, or what was thrown says by
 * `retryable: false` that trying again does not help, as the errors of Millrace do.
 * @param attempt The one that failed, from 1.
 */
export function retryDelayMs(retry: Retry, attempt: number, thrown: unknown): number | undefined {
  if (attempt >= retry.attempts) return undefined
  if (typeof thrown === "object" && thrown !== null && (thrown as { retryable?: unknown }).retryable === false) {
    return undefined
  }
  return backoffMs(attempt - 1, retry.backoffMs, retry.maxBackoffMs)
}

/** Half of a wait is random, so that what failed together does not come back together. */
export function jittered(delayMs: number, random: Random): number {
  return delayMs / 2 + (delayMs / 2) * (random.uint32() / 0xffff_ffff)
}
