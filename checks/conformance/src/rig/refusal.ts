import assert from "node:assert/strict"
import { type ErrorKind, MillraceError } from "@millrace/contract"

/** What a refusal must be: of a kind, and with a message that names the thing, the value seen and what is allowed. */
export interface Refusal {
  readonly kind: ErrorKind
  /** Texts or patterns that the message must contain. */
  readonly says?: readonly (string | RegExp)[]
  readonly retryable?: boolean
  readonly outcome?: "rejected" | "unknown"
}

/** The error that a call fails with, checked; the call's success, or an error of another kind, fails the test. */
export async function refused(call: () => unknown, expected: ErrorKind | Refusal): Promise<MillraceError> {
  const refusal = typeof expected === "string" ? { kind: expected } : expected
  let answer: unknown
  try {
    answer = await call()
  } catch (error) {
    return checkedRefusal(error, refusal)
  }
  return assert.fail(`expected a refusal of kind ${refusal.kind}, but the call answered ${describe(answer)}`)
}

/** The same check for an error that did not come by an exception. */
export function checkedRefusal(error: unknown, expected: ErrorKind | Refusal): MillraceError {
  const refusal: Refusal = typeof expected === "string" ? { kind: expected } : expected
  if (!(error instanceof MillraceError)) {
    const trace = error instanceof Error ? error.stack : describe(error)
    return assert.fail(`expected a MillraceError of kind ${refusal.kind}, got ${trace}`)
  }
  assert.equal(error.kind, refusal.kind, `the error was ${error.kind}: ${error.message}`)
  if (refusal.retryable !== undefined)
    assert.equal(error.retryable, refusal.retryable, `retryable of: ${error.message}`)
  if (refusal.outcome !== undefined) assert.equal(error.outcome, refusal.outcome, `outcome of: ${error.message}`)
  for (const text of refusal.says ?? []) {
    const found = typeof text === "string" ? error.message.includes(text) : text.test(error.message)
    assert.ok(found, `the message must name ${text}, but it is: ${error.message}`)
  }
  return error
}

function describe(value: unknown): string {
  return JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? `${inner}n` : inner)) ?? String(value)
}
