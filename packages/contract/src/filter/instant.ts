/** Instants, for the coercions to a time. */
import type { FilterCoercion } from "./filter.ts"

/** The coercions to an instant. */
export type InstantForm = Exclude<FilterCoercion, "number">

const nanosPer: Readonly<Record<Exclude<InstantForm, "rfc3339">, bigint>> = {
  epochSeconds: 1_000_000_000n,
  epochMillis: 1_000_000n,
  epochMicros: 1000n,
}

const rfc3339 = /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))$/
const wholeNumber = /^[+-]?\d{1,30}$/
const dayMs = 86_400_000

/**
 * Nanoseconds since 1970 of a field under a form. RFC 3339 is text with an explicit zone and at most 9 digits of a fraction; the others
 * are whole numbers, or texts of digits. `undefined` for anything else.
 */
export function instantOf(value: unknown, form: InstantForm): bigint | undefined {
  if (form === "rfc3339") return typeof value === "string" ? parseRfc3339(value) : undefined
  const unit = nanosPer[form]
  if (typeof value === "bigint") return value * unit
  if (typeof value === "number") return Number.isInteger(value) ? BigInt(value) * unit : undefined
  return typeof value === "string" && wholeNumber.test(value) ? BigInt(value.replace("+", "")) * unit : undefined
}

/**
 * Nanoseconds since 1970. A second of 60 is read in the last minute of a day in UTC, where a leap second can be, as the second behind it:
 * so POSIX counts. An offset of −00:00 is UTC.
 */
export function parseRfc3339(text: string): bigint | undefined {
  const parts = rfc3339.exec(text)
  if (parts === null) return undefined
  const field = (index: number): number => Number(parts[index] ?? 0)
  const [year, month, day, hour, minute, second] = [field(1), field(2), field(3), field(4), field(5), field(6)]
  const [zoneHour, zoneMinute] = [field(9), field(10)]
  if (hour > 23 || minute > 59 || second > 60 || zoneHour > 23 || zoneMinute > 59) return undefined
  const date = new Date(0)
  date.setUTCFullYear(year, month - 1, day)
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined
  const zoneMs = (zoneHour * 60 + zoneMinute) * 60_000 * (parts[8] === "-" ? -1 : 1)
  const minuteMs = date.getTime() + (hour * 60 + minute) * 60_000 - zoneMs
  const ofDayMs = ((minuteMs % dayMs) + dayMs) % dayMs
  if (second === 60 && ofDayMs !== dayMs - 60_000) return undefined
  const nanos = BigInt((parts[7] ?? "").padEnd(9, "0"))
  return BigInt(minuteMs + second * 1000) * 1_000_000n + nanos
}
