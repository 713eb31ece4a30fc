/** What a failure means that comes behind a change, or among several: something was done, so the outcome of the whole is not `rejected`. */
import { MillraceError } from "@millrace/contract"
import { withOutcome } from "../errors.ts"

/** Does what follows a change that the cluster has made. @throws what `work` throws, with the outcome unknown */
export async function behindChange<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw error instanceof MillraceError ? withOutcome(error, "unknown") : error
  }
}

/** Makes several changes and waits for all. @throws the first failure; with the outcome unknown when others were made */
export async function allChanges(changes: readonly Promise<unknown>[]): Promise<void> {
  const outcomes = await Promise.allSettled(changes)
  const failure = outcomes.find((outcome) => outcome.status === "rejected")
  if (failure === undefined) return
  const partly = outcomes.some(({ status }) => status === "fulfilled")
  const error: unknown = failure.reason
  throw partly && error instanceof MillraceError ? withOutcome(error, "unknown") : error
}
