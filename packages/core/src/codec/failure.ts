import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"

/** The error of a value that a library could not encode, though nothing was found that its format has no form for. */
export function encodeFailure(codec: string, value: unknown, cause: unknown): InvalidError {
  if (cause instanceof InvalidError) return cause
  const why = cause instanceof Error ? cause.message : String(cause)
  return new InvalidError(`${codec} could not encode ${shown(value)}: ${why}`, { cause })
}
