/** Checks filters: what is wrong is refused with the place where it stands, and never evaluated. */
import { InvalidError, UnsupportedError } from "../error.ts"
import { canonicalText } from "./canonical-text.ts"
import { comparisonWith } from "./comparison.ts"
import { parseFieldPath } from "./field-path.ts"
import {
  type CheckedFilter,
  type FilterCoercion,
  type FilterExpression,
  type FilterPlace,
  type FilterScalar,
  type FilterTest,
  filterLimits,
} from "./filter.ts"
import { type TextOperator, textMatch } from "./text-match.ts"

const utf8 = new TextEncoder()
const policies = {
  codec: ["json", "cbor", "headersOnly"],
  fault: ["stop", "pass", "drop"],
  foreign: ["reject", "pass"],
  mismatch: ["reject", "pass"],
} as const
const coercions: readonly FilterCoercion[] = ["number", "rfc3339", "epochSeconds", "epochMillis", "epochMicros"]
const operators = [
  "eq",
  "ne",
  "lt",
  "lte",
  "gt",
  "gte",
  "in",
  "contains",
  "equals",
  "prefix",
  "suffix",
  "glob",
  "regex",
  "present",
  "absent",
] as const
type Operator = (typeof operators)[number]

const coercible: readonly Operator[] = ["eq", "ne", "lt", "lte", "gt", "gte", "in"]
const foldable: readonly Operator[] = ["contains", "equals", "prefix", "suffix", "glob", "regex"]

/**
 * A filter with its defaults filled in, as new frozen data: what the caller changes later changes nothing.
 * @throws InvalidError whose message begins with the place of the fault (`filter.where.all[2].path: …`); UnsupportedError for the codecs
 *   avro and protobuf
 */
export function checkFilter(filter: unknown): CheckedFilter {
  const given = record(filter, "filter")
  knownKeys(given, ["where", "codec", "fault", "foreign", "mismatch"], "filter")
  if (given.codec === "avro" || given.codec === "protobuf")
    throw new UnsupportedError(
      `filter.codec: ${given.codec} needs the writer's schema, which filters do not look up: use "headersOnly" over headers that say what is to be selected`,
    )
  const choice = <K extends keyof typeof policies>(key: K): (typeof policies)[K][number] => {
    const value = given[key] ?? policies[key][0]
    return oneOf(value, policies[key], `filter.${key}`)
  }
  const codec = choice("codec")
  const where = new ExpressionCheck(codec === "headersOnly").expression(given.where, "filter.where", 1)
  const checked = Object.freeze({
    where,
    codec,
    fault: choice("fault"),
    foreign: choice("foreign"),
    mismatch: choice("mismatch"),
  })
  const bytes = utf8.encode(canonicalText(checked)).length
  if (bytes > filterLimits.filterBytes)
    throw new InvalidError(`filter: its text has ${bytes} bytes; at most ${filterLimits.filterBytes} are allowed`)
  return checked
}

class ExpressionCheck {
  readonly #headersOnly: boolean
  #nodes = 0
  #patterns = 0

  constructor(headersOnly: boolean) {
    this.#headersOnly = headersOnly
  }

  expression(value: unknown, at: string, depth: number): FilterExpression {
    const node = record(value, at)
    if (depth > filterLimits.depth)
      throw new InvalidError(`${at}: the expression is nested deeper than ${filterLimits.depth}`)
    this.#nodes++
    if (this.#nodes > filterLimits.nodes)
      throw new InvalidError(`${at}: the expression has more than ${filterLimits.nodes} nodes`)
    for (const kind of ["all", "any"] as const) {
      if (node[kind] === undefined) continue
      knownKeys(node, [kind], at)
      const children = list(node[kind], `${at}.${kind}`, "expressions")
      const checked = children.map((child, i) => this.expression(child, `${at}.${kind}[${i}]`, depth + 1))
      return Object.freeze({ [kind]: Object.freeze(checked) }) as unknown as FilterExpression
    }
    if (node.not !== undefined) {
      knownKeys(node, ["not"], at)
      return Object.freeze({ not: this.expression(node.not, `${at}.not`, depth + 1) })
    }
    if (node.op === undefined)
      throw new InvalidError(`${at}: an expression has "all", "any" or "not", or a "path" or "header" with an "op"`)
    return this.#test(node, at)
  }

  #test(node: Readonly<Record<string, unknown>>, at: string): FilterTest {
    const place = this.#place(node, at)
    const op = oneOf(node.op, operators, `${at}.op`)
    const presence = op === "present" || op === "absent"
    const options = coercible.includes(op) ? ["as"] : foldable.includes(op) ? ["caseInsensitive"] : []
    knownKeys(node, ["path", "header", "op", ...(presence ? [] : ["value"]), ...options], at)
    if (presence) return Object.freeze({ ...place, op })
    const value = testValue(op, node.value, `${at}.value`)
    const as = node.as === undefined ? undefined : oneOf(node.as, coercions, `${at}.as`)
    if (as !== undefined) checkCoerced(value, as, `${at}.value`)
    const caseInsensitive = this.#folding(node.caseInsensitive, op, { value, at })
    if (op === "glob" || op === "regex") this.#pattern(op, value as string, { at: `${at}.value`, caseInsensitive })
    return Object.freeze({
      ...place,
      op,
      value,
      ...(as === undefined ? {} : { as }),
      ...(caseInsensitive ? { caseInsensitive } : {}),
    }) as FilterTest
  }

  #place(node: Readonly<Record<string, unknown>>, at: string): FilterPlace {
    const { path, header } = node
    if ((path === undefined) === (header === undefined))
      throw new InvalidError(`${at}: a test looks at one place, a "path" or a "header"`)
    if (header !== undefined) return { header: text(header, `${at}.header`, { least: 1 }) }
    if (this.#headersOnly) throw new InvalidError(`${at}.path: a filter with codec "headersOnly" looks at headers only`)
    if (typeof path !== "string") throw new InvalidError(`${at}.path: expected a text, not ${shown(path)}`)
    parseFieldPath(path, `${at}.path`)
    return { path }
  }

  #folding(
    given: unknown,
    op: Operator,
    { value, at }: { readonly value: FilterScalar | readonly FilterScalar[]; readonly at: string },
  ): boolean {
    if (given === undefined) return false
    if (typeof given !== "boolean")
      throw new InvalidError(`${at}.caseInsensitive: expected true or false, not ${shown(given)}`)
    if (given && typeof value !== "string")
      throw new InvalidError(
        `${at}.caseInsensitive: only a text has a case, and the value of "${op}" is ${shown(value)}`,
      )
    return given
  }

  #pattern(
    op: TextOperator,
    pattern: string,
    { at, caseInsensitive }: { readonly at: string; readonly caseInsensitive: boolean },
  ): void {
    this.#patterns++
    if (this.#patterns > filterLimits.patterns)
      throw new InvalidError(`${at}: a filter has at most ${filterLimits.patterns} tests by "glob" and "regex"`)
    textMatch(op, pattern, { at, caseInsensitive })
  }
}

function testValue(op: Operator, value: unknown, at: string): FilterScalar | readonly FilterScalar[] {
  switch (op) {
    case "in":
      return Object.freeze(
        list(value, at, "values", filterLimits.listItems).map((item, i) => scalar(item, `${at}[${i}]`)),
      )
    case "eq":
    case "ne":
    case "contains":
      return scalar(value, at)
    case "lt":
    case "lte":
    case "gt":
    case "gte": {
      const checked = scalar(value, at)
      if (checked !== null && typeof checked !== "boolean") return checked
      throw new InvalidError(`${at}: "${op}" compares with a number or a text, not ${shown(value)}`)
    }
    default:
      return text(value, at, { least: 0 })
  }
}

function scalar(value: unknown, at: string): FilterScalar {
  switch (typeof value) {
    case "string":
      return text(value, at, { least: 0 })
    case "boolean":
      return value
    case "bigint":
      if (value.toString().length > 512) throw new InvalidError(`${at}: a whole number has at most 512 digits`)
      return Number.isSafeInteger(Number(value)) ? Number(value) : value
    case "number":
      if (!Number.isFinite(value)) throw new InvalidError(`${at}: ${value} is not a finite number`)
      if (Number.isInteger(value) && !Number.isSafeInteger(value))
        throw new InvalidError(`${at}: ${value} may have lost digits: write a whole number beyond 2^53 − 1 as a bigint`)
      return value === 0 ? 0 : value
  }
  if (value === null) return null
  throw new InvalidError(`${at}: expected a text, number, bigint, boolean or null, not ${shown(value)}`)
}

function checkCoerced(value: FilterScalar | readonly FilterScalar[], as: FilterCoercion, at: string): void {
  const items = Array.isArray(value) ? (value as readonly FilterScalar[]) : [value as FilterScalar]
  items.forEach((item, i) => {
    if (item !== null && comparisonWith(item, as) !== undefined) return
    const place = Array.isArray(value) ? `${at}[${i}]` : at
    throw new InvalidError(`${place}: ${shown(item)} does not read as ${as}`)
  })
}

function text(value: unknown, at: string, { least }: { readonly least: number }): string {
  if (typeof value !== "string") throw new InvalidError(`${at}: expected a text, not ${shown(value)}`)
  if (!value.isWellFormed()) throw new InvalidError(`${at}: the text has a lone surrogate, which UTF-8 cannot hold`)
  const { length } = utf8.encode(value)
  if (length >= least && length <= filterLimits.stringBytes) return value
  throw new InvalidError(`${at}: the text has ${length} bytes; ${least} to ${filterLimits.stringBytes} are allowed`)
}

function list(value: unknown, at: string, what: string, most: number = Number.POSITIVE_INFINITY): readonly unknown[] {
  if (!Array.isArray(value)) throw new InvalidError(`${at}: expected a list of ${what}, not ${shown(value)}`)
  if (value.length === 0) throw new InvalidError(`${at}: the list is empty`)
  if (value.length > most)
    throw new InvalidError(`${at}: the list has ${value.length} ${what}; at most ${most} are allowed`)
  return Array.from(value)
}

function record(value: unknown, at: string): Readonly<Record<string, unknown>> {
  const prototype = typeof value === "object" && value !== null ? Object.getPrototypeOf(value) : undefined
  if (prototype === Object.prototype || prototype === null) return value as Readonly<Record<string, unknown>>
  throw new InvalidError(`${at}: expected an object, not ${shown(value)}`)
}

function knownKeys(value: Readonly<Record<string, unknown>>, keys: readonly string[], at: string): void {
  for (const key of Object.keys(value)) {
    if (keys.includes(key)) continue
    throw new InvalidError(`${at}.${key}: is not known here; allowed are ${keys.join(", ")}`)
  }
}

function oneOf<T extends string>(value: unknown, allowed: readonly T[], at: string): T {
  if (allowed.includes(value as T)) return value as T
  throw new InvalidError(`${at}: ${shown(value)} is not known; allowed are ${allowed.join(", ")}`)
}

function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value)
  if (typeof value === "bigint") return `${value}n`
  if (Array.isArray(value)) return "a list"
  if (typeof value === "object" && value !== null) return "an object"
  return String(value)
}
