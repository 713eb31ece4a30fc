import process from "node:process"

/** Runs something and tells of every rejection that nobody observes meanwhile, and of what is thrown at nobody. It never rejects. */
export async function observed(
  violate: (invariant: string, text: string) => void,
  work: () => Promise<void>,
): Promise<void> {
  const caught =
    (invariant: string) =>
    (reason: unknown): void =>
      violate(invariant, reason instanceof Error ? `${reason.stack}` : String(reason))
  const rejected = caught("no rejection goes unobserved")
  const uncaught = caught("nothing is thrown at nobody")
  process.on("unhandledRejection", rejected)
  process.on("uncaughtException", uncaught)
  try {
    await work()
  } catch (error) {
    uncaught(error)
  } finally {
    process.off("unhandledRejection", rejected)
    process.off("uncaughtException", uncaught)
  }
}
