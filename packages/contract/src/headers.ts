import { InvalidError } from "./error.ts"
import { HeaderValue } from "./header-value.ts"

/** What headers can be made of. A bare string is short for `HeaderValue.string`. Pairs keep their order and may repeat a name. */
export type HeadersInit =
  | Headers
  | Iterable<readonly [string, HeaderValue | string]>
  | Readonly<Record<string, HeaderValue | string>>

/**
 * The headers of one record: an ordered list of names and typed values in which a name may repeat. Immutable. Order, repetition and
 * bytes are kept on every backend within its limits.
 */
export class Headers implements Iterable<readonly [string, HeaderValue]> {
  static readonly empty: Headers = new Headers([])

  readonly #entries: readonly (readonly [string, HeaderValue])[]

  private constructor(entries: readonly (readonly [string, HeaderValue])[]) {
    this.#entries = entries
  }

  /** @throws InvalidError for a value that is neither a `HeaderValue` nor a string, or an empty name. */
  static from(init: HeadersInit | undefined): Headers {
    if (init === undefined) return Headers.empty
    if (init instanceof Headers) return init
    const pairs = isIterable(init) ? init : Object.entries(init)
    const entries: (readonly [string, HeaderValue])[] = []
    for (const [name, value] of pairs) entries.push([checkedName(name), toValue(name, value)])
    return entries.length === 0 ? Headers.empty : new Headers(entries)
  }

  /** For drivers: entries that come from the log are taken as they are. The array is not copied. */
  static ofStored(entries: readonly (readonly [string, HeaderValue])[]): Headers {
    return entries.length === 0 ? Headers.empty : new Headers(entries)
  }

  /** How many entries there are, repetitions counted. */
  get size(): number {
    return this.#entries.length
  }

  /** The first value of a name, or `undefined`. */
  get(name: string): HeaderValue | undefined {
    return this.#entries.find(([known]) => known === name)?.[1]
  }

  /** All values of a name, in order. */
  getAll(name: string): HeaderValue[] {
    return this.#entries.filter(([known]) => known === name).map(([, value]) => value)
  }

  has(name: string): boolean {
    return this.#entries.some(([known]) => known === name)
  }

  [Symbol.iterator](): Iterator<readonly [string, HeaderValue]> {
    return this.#entries[Symbol.iterator]()
  }

  /** `[name, { kind, value }]` for each entry, in order, without losing a digit or a byte. */
  toJSON(): [string, ReturnType<HeaderValue["toJSON"]>][] {
    return this.#entries.map(([name, value]) => [name, value.toJSON()])
  }
}

function isIterable(init: HeadersInit): init is Iterable<readonly [string, HeaderValue | string]> {
  return typeof (init as { [Symbol.iterator]?: unknown })[Symbol.iterator] === "function"
}

function checkedName(name: unknown): string {
  if (typeof name !== "string" || name.length === 0) throw new InvalidError("a header name must be a non-empty string")
  if (!name.isWellFormed()) throw new InvalidError(`header name ${JSON.stringify(name)} has a lone surrogate`)
  return name
}

function toValue(name: string, value: unknown): HeaderValue {
  if (typeof value === "string") return HeaderValue.string(value)
  if (value instanceof HeaderValue) return value
  throw new InvalidError(`header ${JSON.stringify(name)}: expected a HeaderValue or a string, not ${typeof value}`)
}
