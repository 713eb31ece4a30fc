/** A second evaluator, as plain as can be, for the filters and records of `filter.test-support.ts`. */
import type { FilterExpression, FilterScalar } from "./filter.ts"

/** What a test or an expression comes to. */
export type Outcome = "yes" | "no" | "missing" | "mismatch" | "fault"
const graveness: readonly Outcome[] = ["missing", "mismatch", "fault"]

/** A record, decoded. */
export interface Seen {
  readonly payload: unknown
  readonly decodes: boolean
  readonly headers: ReadonlyMap<string, unknown>
}

/** The record of a JSON text. */
export function seen(
  payload: string,
  headers: readonly { readonly name: string; readonly value: string | number }[],
): Seen {
  const exact = (_key: string, value: unknown, context?: { readonly source?: string }): unknown =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context?.source as string)
      : value
  try {
    return {
      payload: JSON.parse(payload, exact),
      decodes: true,
      headers: new Map(headers.map(({ name, value }) => [name, value])),
    }
  } catch {
    return { payload: undefined, decodes: false, headers: new Map(headers.map(({ name, value }) => [name, value])) }
  }
}

/** What the expression comes to for a record. */
export function plain(expression: FilterExpression, subject: Seen): Outcome {
  if ("not" in expression) {
    const inner = plain(expression.not, subject)
    return inner === "yes" ? "no" : inner === "no" ? "yes" : inner
  }
  if ("all" in expression || "any" in expression) {
    const outcomes = ("all" in expression ? expression.all : expression.any).map((child) => plain(child, subject))
    const decisive = "all" in expression ? "no" : "yes"
    if (outcomes.includes(decisive)) return decisive
    for (const grave of [...graveness].reverse()) if (outcomes.includes(grave)) return grave
    return decisive === "no" ? "yes" : "no"
  }
  if (expression.path !== undefined && !subject.decodes) return "fault"
  let value: unknown = expression.header === undefined ? subject.payload : subject.headers.get(expression.header)
  if (expression.path !== undefined)
    for (const step of expression.path.match(/[^.[\]]+/g) ?? []) {
      const list = /^\d+$/.test(step)
      if (typeof value !== "object" || value === null || Array.isArray(value) !== list) value = undefined
      else value = (value as Record<string, unknown>)[step]
    }
  return plainTest(expression as FilterExpression & { op: string }, value)
}

function plainTest(
  test: { op: string; value?: unknown; as?: string; caseInsensitive?: boolean },
  value: unknown,
): Outcome {
  const { op, as } = test
  if (op === "present") return value === undefined ? "no" : "yes"
  if (op === "absent") return value === undefined ? "yes" : "no"
  if (op === "in") {
    const outcomes = (test.value as FilterScalar[]).map((item) =>
      plainTest({ op: "eq", value: item, ...(as === undefined ? {} : { as }) }, value),
    )
    if (outcomes.includes("yes")) return "yes"
    if (outcomes.includes("no")) return "no"
    return outcomes.includes("missing") ? "missing" : "mismatch"
  }
  if (op === "ne") {
    const equal = plainTest({ ...test, op: "eq" }, value)
    return equal === "yes" ? "no" : equal === "no" ? "yes" : equal
  }
  if (op === "eq" && test.value === null) return value === undefined || value === null ? "yes" : "no"
  if (value === undefined || value === null) return "missing"
  const fold = (text: unknown): unknown =>
    typeof text === "string" && test.caseInsensitive === true ? text.toLowerCase() : text
  if (op === "contains" && Array.isArray(value)) {
    const equal = (item: unknown): boolean => {
      // biome-ignore lint/suspicious/noDoubleEquals: a number and a bigint of one value are equal
      if (isNumber(item) && isNumber(test.value)) return item == test.value
      return fold(item) === fold(test.value)
    }
    return value.some(equal) ? "yes" : "no"
  }
  if (["contains", "equals", "prefix", "suffix"].includes(op)) {
    const [text, wanted] = [fold(value), fold(test.value)]
    if (typeof text !== "string" || typeof wanted !== "string") return "mismatch"
    const at = {
      contains: text.includes(wanted),
      equals: text === wanted,
      prefix: text.startsWith(wanted),
      suffix: text.endsWith(wanted),
    }
    return at[op as keyof typeof at] ? "yes" : "no"
  }
  const [left, right] = [read(value, as), read(test.value, as) ?? read(test.value, "rfc3339")]
  if (
    left === undefined ||
    right === undefined ||
    (typeof left !== typeof right && !(isNumber(left) && isNumber(right)))
  )
    return "mismatch"
  if (typeof left === "boolean" && op !== "eq") return "mismatch"
  // biome-ignore lint/suspicious/noDoubleEquals: as above
  const holds = { eq: left == right, lt: left < right, lte: left <= right, gt: left > right, gte: left >= right }
  return holds[op as keyof typeof holds] ? "yes" : "no"
}

function isNumber(value: unknown): value is number | bigint {
  return typeof value === "number" || typeof value === "bigint"
}

/** A value under a coercion, for the few forms that the random filters use: numbers in hundredths, times in microseconds. */
function read(value: unknown, as: string | undefined): string | number | bigint | boolean | undefined {
  if (as === undefined)
    return typeof value === "string" || isNumber(value) || typeof value === "boolean" ? value : undefined
  if (as === "rfc3339") return value === "1970-01-01T00:00:01Z" ? 1_000_000n : undefined
  const text =
    typeof value === "string" ? value : isNumber(value) && String(value) !== "Infinity" ? String(value) : "none"
  if (as === "number")
    return /^-?\d+(\.\d+)?$/.test(text)
      ? BigInt(text.replace(/\.(\d+)$/, "")) * 100n +
          BigInt(text.startsWith("-") ? -1 : 1) * BigInt((text.split(".")[1] ?? "").padEnd(2, "0"))
      : undefined
  const unit = { epochSeconds: 1_000_000n, epochMillis: 1000n, epochMicros: 1n }[as]
  return unit !== undefined && /^-?\d+$/.test(text) ? BigInt(text) * unit : undefined
}
