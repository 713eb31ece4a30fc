/** Answers of the user's functions, which may be async whatever their type says. */

/** Whether an answer is a promise, or looks like one. */
export function isThenable(answer: unknown): answer is PromiseLike<unknown> {
  if (answer === null || (typeof answer !== "object" && typeof answer !== "function")) return false
  return typeof (answer as { readonly then?: unknown }).then === "function"
}

/**
 * Calls a listener whose answer counts for nothing. It may be async though its type says void: its rejection is observed all the same.
 * @param failed Told what it throws, or rejects with.
 * @returns whether it returned
 */
export function tellObserved(call: () => unknown, failed: (thrown: unknown) => void): boolean {
  try {
    const answer = call()
    if (isThenable(answer)) Promise.resolve(answer).catch(failed)
    return true
  } catch (thrown) {
    failed(thrown)
    return false
  }
}
