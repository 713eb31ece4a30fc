/**
 * Checks of options, the same everywhere: unknown keys are refused with the list of known ones, and a value out of range is refused
 * with the value and what is allowed. An option that is absent or `undefined` takes its fallback.
 */
import { InvalidError } from "@millrace/contract"

/** The longest duration an option may have, in ms: 2^31 − 1 (table 1.1 and 1.14 of the options). */
export const longestDurationMs: number = 2_147_483_647

/** Reads one options object, key by key. Errors name the object, the key, the value and what is allowed. */
export class OptionReader<T extends object> {
  readonly #owner: string
  readonly #values: Partial<Record<keyof T, unknown>>

  /**
   * @param owner How error messages call the object: `producer`, `topic "s/t"`.
   * @param known Every key that is allowed.
   * @throws InvalidError when `options` is not an object or has another key.
   */
  constructor(owner: string, options: T | undefined, known: readonly (keyof T & string)[]) {
    this.#owner = owner
    if (options !== undefined && (typeof options !== "object" || options === null || Array.isArray(options))) {
      throw new InvalidError(`${owner}: the options must be an object, not ${shown(options)}`)
    }
    this.#values = (options ?? {}) as Partial<Record<keyof T, unknown>>
    for (const key of Object.keys(this.#values)) {
      if (!(known as readonly string[]).includes(key)) {
        throw new InvalidError(`${owner}: unknown option ${shown(key)}. Known options: ${[...known].sort().join(", ")}`)
      }
    }
  }

  /** A whole number from `min` to `max` (2^31 − 1 unless given). */
  whole(
    key: keyof T & string,
    range: { readonly min: number; readonly max?: number; readonly fallback: number },
  ): number {
    const value = this.#values[key]
    if (value === undefined) return range.fallback
    const max = range.max ?? longestDurationMs
    if (typeof value === "number" && Number.isInteger(value) && value >= range.min && value <= max) return value
    throw this.#wrong(key, value, `a whole number from ${range.min} to ${max}`)
  }

  /** A duration in ms, fractions allowed: above 0, or from 0 with `zero`, to `longestDurationMs`. */
  duration<F extends number | undefined>(
    key: keyof T & string,
    range: { readonly zero?: boolean; readonly fallback: F },
  ): number | F {
    const value = this.#values[key]
    if (value === undefined) return range.fallback
    const least = range.zero === true ? "from 0" : "above 0"
    if (
      typeof value === "number" &&
      (value > 0 || (value === 0 && range.zero === true)) &&
      value <= longestDurationMs
    ) {
      return value
    }
    throw this.#wrong(key, value, `a number of milliseconds ${least}, at most ${longestDurationMs}`)
  }

  /** A size in bytes as a bigint above 0, at most 2^63 − 1. */
  size(key: keyof T & string): bigint | undefined {
    const value = this.#values[key]
    if (value === undefined) return undefined
    if (typeof value === "bigint" && value > 0n && value < 1n << 63n) return value
    throw this.#wrong(key, value, "a bigint of bytes above 0, at most 9223372036854775807n")
  }

  flag(key: keyof T & string, fallback: boolean): boolean {
    const value = this.#values[key]
    if (value === undefined) return fallback
    if (typeof value === "boolean") return value
    throw this.#wrong(key, value, "true or false")
  }

  /** A flag that can only be given as `true`, the counterpart of a value: `neverExpire`. */
  mark(key: keyof T & string): boolean {
    const value = this.#values[key]
    if (value === undefined) return false
    if (value === true) return true
    throw this.#wrong(key, value, "true, or absent")
  }

  choice<C extends string>(key: keyof T & string, choices: readonly C[], fallback: C): C {
    const value = this.#values[key]
    if (value === undefined) return fallback
    if ((choices as readonly unknown[]).includes(value)) return value as C
    throw this.#wrong(key, value, `one of ${choices.map((choice) => shown(choice)).join(", ")}`)
  }

  callback<F>(key: keyof T & string): F | undefined {
    const value = this.#values[key]
    if (value === undefined || typeof value === "function") return value as F | undefined
    throw this.#wrong(key, value, "a function")
  }

  /** Refuses two options that contradict each other. */
  exclusive(first: keyof T & string, second: keyof T & string): void {
    if (this.#values[first] === undefined || this.#values[second] === undefined) return
    throw new InvalidError(`${this.#owner}: options ${shown(first)} and ${shown(second)} exclude each other: give one`)
  }

  #wrong(key: string, value: unknown, allowed: string): InvalidError {
    return new InvalidError(`${this.#owner}: option ${shown(key)} is ${shown(value)}; it must be ${allowed}`)
  }
}

/** A value as error messages show it: short, on one line, without failing on any value. */
export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 80 ? `${value.slice(0, 77)}...` : value)
  if (typeof value === "bigint") return `${value}n`
  if (value === null || typeof value !== "object") return typeof value === "function" ? "a function" : String(value)
  if (Array.isArray(value)) return `an array of ${value.length}`
  return `an object (${Object.getPrototypeOf(value)?.constructor?.name ?? "without prototype"})`
}

/** Those of some options that were given, to be handed on to what takes them. */
export function pickOptions<T extends object>(from: object, keys: readonly (keyof T & string)[]): Partial<T> {
  const own: Partial<T> = {}
  for (const key of keys) {
    const value = (from as Partial<T>)[key]
    if (value !== undefined) own[key] = value
  }
  return own
}
