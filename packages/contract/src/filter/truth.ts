/**
 * The logic of filters. Beside true and false a test can be unknown, and an unknown has a reason; the graver one is kept, so that the
 * outcome does not depend on the order of the tests.
 */

/** `no` and `yes` decide; the others are unknown, each graver than the one before. */
export type Truth = 0 | 1 | 2 | 3 | 4 | 5

export const no = 0
export const yes = 1
/** A field is missing or null. */
export const unknown = 2
/** A value has a type that the test cannot compare. */
export const mismatch = 3
/** The payload is of another codec, or encrypted. */
export const foreign = 4
/** The record cannot be decoded. */
export const fault = 5

/** The other way round; what is unknown stays so. */
export function negated(truth: Truth): Truth {
  if (truth === no) return yes
  return truth === yes ? no : truth
}
