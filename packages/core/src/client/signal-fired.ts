import { CancelledError } from "@millrace/contract"

/** Why a call ends whose signal fired. The signal's reason is its cause. */
export function signalFired(what: string, signal: AbortSignal | undefined): CancelledError {
  return new CancelledError(`${what}: the signal fired`, { cause: signal?.reason })
}
