/** Requests that prepare the ground (describe, create, acquire an identity): bounded in time, retried in bounds. */
import { CancelledError, MillraceError, TimeoutError } from "@millrace/contract"
import { backoffMs, type Clock } from "@millrace/runtime"

/** The longest wait between two attempts, in ms (seed 000, "Direct producer"). */
export const longestBackoffMs: number = 30_000

/** How often and how long a request is tried. */
export interface AttemptSettings {
  /** Of one attempt. */
  readonly timeoutMs: number
  /** Attempts behind the first. */
  readonly retries: number
  /** The first wait; each later one is twice as long, up to `longestBackoffMs`. */
  readonly retryBackoffMs: number
}

/** One request of `attempt`. */
export interface Attempt<T> {
  /** How a time-out calls it: `describing topic "s/t"`. */
  readonly what: string
  readonly request: () => Promise<T>
  /** Ends the waiting at once with `CancelledError`; a request under way is left to itself. */
  readonly signal?: AbortSignal
  /**
   * Given for a request that changes something: whether an error says for certain that it has not happened, whatever became of the attempts
   * before. Any other error has the outcome `unknown` once an attempt had it.
   */
  readonly isCertain?: (error: MillraceError) => boolean
}

/**
 * Runs a request until it succeeds, fails for good, or its retries are used up. Only errors that are `retryable` are retried, so the
 * request must be one that may be repeated.
 * @throws the last failure; TimeoutError when an attempt took longer than `timeoutMs`; CancelledError on abort
 */
export async function attempt<T>(clock: Clock, settings: AttemptSettings, work: Attempt<T>): Promise<T> {
  let inDoubt = false
  for (let retry = 0; ; retry++) {
    try {
      return await within(clock, settings.timeoutMs, work)
    } catch (error) {
      const again = error instanceof MillraceError && error.retryable && retry < settings.retries
      if (!again || work.signal?.aborted === true) throw inDoubt ? truthful(work, error) : error
      if (error.outcome === "unknown") inDoubt = true
      await pause(clock, backoffMs(retry, settings.retryBackoffMs, longestBackoffMs), work)
    }
  }
}

/** The last failure, as far as it is the truth about the attempts before. */
function truthful({ isCertain }: Attempt<unknown>, error: unknown): unknown {
  if (isCertain === undefined || !(error instanceof MillraceError)) return error
  return isCertain(error) ? error : mayHaveHappened(error)
}

/**
 * The error of what an earlier attempt may have done: its outcome is unknown.
 * @param what What that attempt may have done, in words.
 */
export function mayHaveHappened(error: MillraceError, what: string = "done it"): MillraceError {
  if (error.outcome === "unknown") return error
  const { kind, message, retryable, context } = error
  const text = `${message} (an earlier attempt may have ${what})`
  return new MillraceError(kind, text, { retryable, outcome: "unknown", context, cause: error })
}

/** One attempt with its deadline. A late answer is dropped, and observed. */
function within<T>(clock: Clock, timeoutMs: number, work: Attempt<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = (settle: () => void): void => {
      timer.cancel()
      work.signal?.removeEventListener("abort", abort)
      settle()
    }
    const abort = (): void => end(() => reject(cancelled(work)))
    const timer = clock.setTimer(timeoutMs, () =>
      end(() => reject(new TimeoutError(`${work.what} took longer than ${timeoutMs} ms`))),
    )
    if (work.signal?.aborted === true) return abort()
    work.signal?.addEventListener("abort", abort)
    new Promise<T>((answer) => answer(work.request())).then(
      (value) => end(() => resolve(value)),
      (error) => end(() => reject(error)),
    )
  })
}

function pause(clock: Clock, ms: number, work: Attempt<unknown>): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = clock.setTimer(ms, () => {
      work.signal?.removeEventListener("abort", abort)
      resolve()
    })
    const abort = (): void => {
      timer.cancel()
      reject(cancelled(work))
    }
    work.signal?.addEventListener("abort", abort, { once: true })
  })
}

function cancelled(work: Attempt<unknown>): CancelledError {
  return new CancelledError(`${work.what} was given up`, { cause: work.signal?.reason })
}
