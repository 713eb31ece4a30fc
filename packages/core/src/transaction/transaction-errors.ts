/** What transactional producers say, beyond what their machine does. */
import { type MillraceError, TransactionAbortedError, TransactionStateError } from "@millrace/contract"

/** The transaction holds an error. */
export function mustAbort(what: string, cause: MillraceError): TransactionAbortedError {
  const message = `${what}: the transaction cannot be committed, and has to be aborted: ${cause.message}`
  return new TransactionAbortedError(message, { cause })
}

/** A guard is asked for something when its transaction has ended. @param ending How */
export function isOver(what: string, call: string, ending: string): TransactionStateError {
  const how = ending === "unknown" ? "not known any more: call init()" : ending
  return new TransactionStateError(
    `${what}: ${call} is not possible: this transaction is ${how}; nothing more can be done with it`,
    { context: { call, ending } },
  )
}

/** Records before were given up in doubt, and the identity under which they were numbered is still the same. */
export function numbersLost(what: string): TransactionStateError {
  return new TransactionStateError(
    `${what}: records of an earlier transaction were given up, and it is not known how far they came: call init() for a new incarnation`,
  )
}
