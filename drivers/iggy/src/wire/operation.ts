/** The operation byte of requests and replies, and what it says about a body (iggy-wire.md: Replies, Sessions, Commands). */

/** Requests that are not of the replicated log; the command's code stands in the header instead. */
export const nonReplicated = 2
export const register = 1
export const logout = 3

/**
 * How a request may be handled again. `session`: login and logout. `read`: any time, as it changes nothing. `metadata`: the server
 * remembers the request id and answers again from memory. `partition`: never, as a resend is done again.
 */
export type OperationClass = "session" | "read" | "metadata" | "partition"

/** Send, store offset, delete offset. */
const partitionOperations: readonly number[] = [160, 161, 162]

export function operationClass(operation: number): OperationClass {
  if (operation === nonReplicated) return "read"
  if (operation === register || operation === logout) return "session"
  return partitionOperations.includes(operation) ? "partition" : "metadata"
}

/** Whether the body of a reply begins with a list of results. */
export function isResultFramed(operation: number, bodyBytes: number): boolean {
  if (operation === register) return bodyBytes > 0
  if (operation >= 64 && operation <= 68) return true
  if (operation === 138 || operation === 160) return false
  return (operation >= 128 && operation <= 150) || operation === 161 || operation === 162
}
