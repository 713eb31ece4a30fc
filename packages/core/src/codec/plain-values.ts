/**
 * What a format has a form for. Libraries write many values silently as something else: a Set as `{}`, an error as an array, a bigint
 * without its upper bits, half a surrogate pair as U+FFFD. A codec walks over the value first, and refuses what would not come back.
 */
import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { encodeFailure } from "./failure.ts"

/** The levels of nesting that codecs of binary formats take: libraries recurse, and the stack is not theirs alone. */
export const binaryLevels = 1000

/** The values that a format keeps, beside null, booleans, strings, numbers, arrays and plain objects. */
export interface PlainRules {
  /** What the format is called in errors: `CBOR`. */
  readonly codec: string
  /** bigints from `min` to `max`; absent: none. */
  readonly bigints?: { readonly min: bigint; readonly max: bigint }
  /** NaN and the infinities. */
  readonly nonFinite: boolean
  /** `undefined` as an element, or as the whole value. As a property it is always left out. */
  readonly undefinedValues: boolean
  /** `Uint8Array` with its subclasses. No other view is kept as what it is by any format. */
  readonly bytes: boolean
  /** A valid `Date`, as a point in time. */
  readonly dates: boolean
  /** Strings with half a surrogate pair. */
  readonly loneSurrogates: boolean
  /** What a `Map` may have as keys. */
  readonly maps: "none" | "string keys" | "any keys"
  /** An own property called `__proto__`. */
  readonly protoKey: boolean
  /** As JSON does it: objects are asked for their `toJSON`, and functions and symbols are left out. Else both are refused. */
  readonly toJson: boolean
  /** Levels of nesting. */
  readonly mostLevels: number
  /** Objects of the library itself, which it writes by its own rules. */
  readonly own?: (value: object) => boolean
}

/** What the walk has met so far that a library may need in another form. */
let met: Peculiarities = 0

/** A sum of `undefinedProperty` and `wideNumber`. */
export type Peculiarities = number
/** A property is `undefined`, and is to be left out. */
const undefinedProperty = 1
/** A number is a whole one beyond 32 bits, and within ±(2^53 − 1). */
const wideNumber = 2

/**
 * Passes for what the format keeps, and says what of it is peculiar.
 * @throws InvalidError that names the format, the path, and what stands there
 */
export function checkPlain(value: unknown, rules: PlainRules): Peculiarities {
  met = 0
  try {
    if (!isPlain(value, rules, 0)) throw explain(value, rules)
  } catch (cause) {
    // A getter or a toJSON of the user's own may throw anything.
    throw encodeFailure(rules.codec, value, cause)
  }
  return met
}

function isPlain(value: unknown, rules: PlainRules, level: number): boolean {
  switch (typeof value) {
    case "string":
      return rules.loneSurrogates || value.isWellFormed()
    case "number":
      if ((value | 0) === value) return true
      if ((value > 0xffffffff || value < -0x80000000) && Number.isSafeInteger(value)) met |= wideNumber
      return rules.nonFinite || Number.isFinite(value)
    case "boolean":
      return true
    case "object":
      return value === null || isPlainObject(value, rules, level)
    case "undefined":
      return rules.undefinedValues
    case "bigint":
      return rules.bigints !== undefined && value >= rules.bigints.min && value <= rules.bigints.max
    default:
      return false
  }
}

function isPlainObject(value: object, rules: PlainRules, level: number): boolean {
  if (level >= rules.mostLevels) return false
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      if (!isPlain(value[index], rules, level + 1)) return false
    }
    return true
  }
  const prototype = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) {
    const special = specialIsPlain(value, rules, level)
    if (special !== undefined) return special
  }
  if (typeof (value as { readonly toJSON?: unknown }).toJSON === "function") {
    return rules.toJson && isPlain((value as { toJSON(key: string): unknown }).toJSON(""), rules, level + 1)
  }
  for (const key in value) {
    if (!Object.hasOwn(value, key)) continue
    const property = (value as Record<string, unknown>)[key]
    if (property === undefined || (rules.toJson && isLeftOut(property))) {
      met |= undefinedProperty
      continue
    }
    if (!isPlain(property, rules, level + 1)) return false
    if (!rules.loneSurrogates && !key.isWellFormed()) return false
    if (!rules.protoKey && key === "__proto__") return false
  }
  return true
}

function isLeftOut(value: unknown): boolean {
  return value === undefined || typeof value === "function" || typeof value === "symbol"
}

/** Whether an object of a class is kept; `undefined` for classes of the user's own, whose properties count. */
function specialIsPlain(value: object, rules: PlainRules, level: number): boolean | undefined {
  if (rules.own?.(value) === true) return true
  if (value instanceof Uint8Array) return rules.bytes
  if (value instanceof Date) return (rules.dates || rules.toJson) && !Number.isNaN(value.getTime())
  if (value instanceof Map) return rules.maps !== "none" && mapIsPlain(value, rules, level)
  return isOpaque(value) ? false : undefined
}

function mapIsPlain(map: ReadonlyMap<unknown, unknown>, rules: PlainRules, level: number): boolean {
  for (const [key, value] of map) {
    if (rules.maps === "string keys" && typeof key !== "string") return false
    if (key === "__proto__" && !rules.protoKey) return false
    if (!isPlain(key, rules, level + 1) || !isPlain(value, rules, level + 1)) return false
  }
  return true
}

/** Built-in objects whose content is not in their properties, so that writing these would lose it. */
function isOpaque(value: object): boolean {
  if (ArrayBuffer.isView(value) || value instanceof Error) return true
  const tag = Object.prototype.toString.call(value)
  return tag !== "[object Object]" && tag !== "[object Array]"
}

/** Finds what `isPlain` did not like, with its path. Only failures pay for this. */
function explain(root: unknown, rules: PlainRules): InvalidError {
  const path: string[] = []
  const why = searchFault(root, rules, { path, above: new Set() }) ?? shown(root)
  const at = path.length > 12 ? `${path.slice(0, 12).join("")}… (${path.length} levels down)` : path.join("")
  return new InvalidError(`${rules.codec} has no form for ${why}${at === "" ? "" : `, at ${at.replace(/^\./, "")}`}`)
}

function searchFault(
  value: unknown,
  rules: PlainRules,
  place: { readonly path: string[]; readonly above: Set<object> },
): string | undefined {
  if (typeof value !== "object" || value === null) return isPlain(value, rules, 0) ? undefined : leafText(value)
  if (place.above.has(value)) return "a reference to what it is in, a cycle"
  if (place.path.length >= rules.mostLevels) return `what is nested deeper than ${rules.mostLevels} levels`
  const own = objectFault(value, rules)
  if (own !== undefined || rules.own?.(value) === true) return own
  if (ArrayBuffer.isView(value) || value instanceof Date) return undefined
  place.above.add(value)
  for (const [key, child] of childrenOf(value, rules)) {
    place.path.push(key)
    const why = keyFault(key, rules) ?? searchFault(child, rules, place)
    if (why !== undefined) return why
    place.path.pop()
  }
  place.above.delete(value)
  return undefined
}

function childrenOf(value: object, rules: PlainRules): Iterable<readonly [key: string, child: unknown]> {
  if (Array.isArray(value)) return Array.from(value, (child, index) => [`[${index}]`, child])
  if (value instanceof Map)
    return Array.from(value, ([key, child]) => [`.${typeof key === "string" ? key : shown(key)}`, child])
  const { toJSON } = value as { readonly toJSON?: unknown }
  if (typeof toJSON === "function") return [["", (value as { toJSON(key: string): unknown }).toJSON("")]]
  return Object.entries(value)
    .filter(([, child]) => child !== undefined && !(rules.toJson && isLeftOut(child)))
    .map(([key, child]) => [`.${key}`, child])
}

function keyFault(key: string, rules: PlainRules): string | undefined {
  if (key === ".__proto__" && !rules.protoKey) return "a key that means something else in JavaScript"
  return rules.loneSurrogates || key.isWellFormed() ? undefined : "a key with half a surrogate pair"
}

function leafText(value: unknown): string {
  if (typeof value === "string") return "a string with half a surrogate pair"
  if (typeof value !== "bigint") return shown(value)
  const digits = value.toString()
  if (digits.length <= 40) return `the bigint ${digits}`
  return `a bigint of ${digits.length - (value < 0n ? 1 : 0)} digits`
}

/** What is wrong with an object whatever is in it. */
function objectFault(value: object, rules: PlainRules): string | undefined {
  if (rules.own?.(value) === true || Array.isArray(value)) return undefined
  if (value instanceof Uint8Array) return rules.bytes ? undefined : "bytes (a Uint8Array)"
  if (value instanceof Date) {
    if (!rules.dates && !rules.toJson) return "a Date"
    return Number.isNaN(value.getTime()) ? "an invalid Date" : undefined
  }
  if (value instanceof Map) {
    if (rules.maps === "none") return "a Map"
    const strings = rules.maps === "any keys" || [...value.keys()].every((key) => typeof key === "string")
    return strings ? undefined : "a Map with keys that are no strings"
  }
  if (isOpaque(value)) return shown(value)
  const { toJSON } = value as { readonly toJSON?: unknown }
  return typeof toJSON === "function" && !rules.toJson
    ? `${shown(value)} with a toJSON: give what that returns`
    : undefined
}
