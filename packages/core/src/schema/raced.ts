import { FencedError, TimeoutError } from "@millrace/contract"

/** How often a change is tried over again because somebody else was first. Each time somebody else's change did succeed. */
const mostRaces = 100

/**
 * Runs a change that reads a value and puts another over its revision, again whenever somebody else wrote in between.
 * @throws TimeoutError after 100 times
 */
export async function raced<T>(what: string, change: () => Promise<T>): Promise<T> {
  for (let race = 0; race < mostRaces; race++) {
    try {
      return await change()
    } catch (error) {
      if (!(error instanceof FencedError)) throw error
    }
  }
  throw new TimeoutError(`${what} was changed by others each of the ${mostRaces} times it was to be changed`, {
    outcome: "rejected",
  })
}

/** Runs a put that nobody may have done before. False when somebody had. */
export async function first(put: () => Promise<unknown>): Promise<boolean> {
  try {
    await put()
    return true
  } catch (error) {
    if (error instanceof FencedError) return false
    throw error
  }
}
