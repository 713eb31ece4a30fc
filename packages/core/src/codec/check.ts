import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { settled } from "./decoding.ts"
import { isStandardSchema, type StandardSchema, validate } from "./standard-schema.ts"

/**
 * What makes a `T` of a decoded value, since types do not exist at run time: a function that returns it or throws, or a Standard Schema
 * (zod, valibot, …) that answers synchronously.
 */
export type Check<T> = ((value: unknown) => T) | StandardSchema<T>

/**
 * A check as a function.
 * @param owner How the error message calls what takes it: `new Json`.
 * @throws InvalidError when it is neither; the function throws DecodeError when the check answers with a promise
 */
export function checker<T>(owner: string, check: Check<T>): (value: unknown) => T {
  if (isStandardSchema(check)) return (value) => validate(check as StandardSchema<T>, value)
  if (typeof check === "function") return (value) => settled(check(value))
  throw new InvalidError(`${owner} takes a function that checks a value, or a Standard Schema, not ${shown(check)}`)
}

/** The check of those who want none: the value as it was decoded. */
export function unchecked(value: unknown): unknown {
  return value
}

/** A check that may be left out, by callers whose types make that an `unknown`. */
export function checkOrNone<T>(check: Check<T> | undefined): Check<T> {
  return check === undefined ? (unchecked as (value: unknown) => T) : check
}
