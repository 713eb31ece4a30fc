/** Waiting in tests: for a condition, never for a time. */

/** How long a condition may take before the test fails, in ms: `MILLRACE_PATIENCE_MS`, or enough for a busy machine. Nothing waits so long when all is well. */
export const patienceMs: number = Number(process.env.MILLRACE_PATIENCE_MS ?? 15_000)

/**
 * Asks again until the answer is not `undefined`.
 * @throws Error naming `what` after `patienceMs`.
 */
export async function until<T>(
  what: string,
  ask: () => T | undefined | Promise<T | undefined>,
  withinMs: number = patienceMs,
): Promise<T> {
  const deadline = performance.now() + withinMs
  for (;;) {
    const answer = await ask()
    if (answer !== undefined) return answer
    if (performance.now() > deadline) throw new Error(`waited ${withinMs} ms in vain for ${what}`)
    await pause(5)
  }
}

/** The promise's outcome, or an error naming `what` when it has none after `withinMs`: a hang becomes a failure with a name. */
export async function settlesWithin<T>(what: string, promise: Promise<T>, withinMs: number = patienceMs): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const overdue = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} has not settled after ${withinMs} ms`)), withinMs)
  })
  try {
    return await Promise.race([promise, overdue])
  } finally {
    clearTimeout(timer)
  }
}

/** Whether the promise is still pending after everything that was ready has run. */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let pending = true
  const settled = (): void => {
    pending = false
  }
  promise.then(settled, settled)
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve))
  return pending
}

/** One step of a loop that polls a condition. */
function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
