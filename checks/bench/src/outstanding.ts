/** Load with a fixed number of calls under way. */

/**
 * Makes `count` calls, `width` of them outstanding at any time: whenever one settles the next begins. Settles when all have.
 * @throws what the first failing call throws, once every lane has stopped.
 */
export async function keepOutstanding(count: number, width: number, call: () => Promise<unknown>): Promise<void> {
  let left = count
  let failed = false
  const lane = async (): Promise<void> => {
    while (left > 0 && !failed) {
      left--
      try {
        await call()
      } catch (error) {
        failed = true
        throw error
      }
    }
  }
  const outcomes = await Promise.allSettled(Array.from({ length: Math.min(width, count) }, lane))
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason
}
