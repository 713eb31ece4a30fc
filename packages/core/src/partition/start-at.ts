import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"

/**
 * Where a consumer begins (seed 000, "Where a consumer starts"; table 1.7).
 *
 * - `first`: the oldest record. `last`: the newest one.
 * - `next`: after the stored offset; while nothing is stored, the oldest record.
 * - `offset`: the record at `value`. `timestampMicros`: the first one that was appended at or after `value`; behind all records, the
 *   next that is appended.
 */
export type StartAt =
  | { readonly kind: "first" | "last" | "next" }
  | { readonly kind: "offset" | "timestampMicros"; readonly value: bigint }

const largestOffset = (1n << 63n) - 1n

/**
 * @param options.name How errors call the value. Default `startAt`.
 * @throws InvalidError that lists the kinds, or names the range of `value`.
 */
export function checkStartAt(what: string, startAt: StartAt, options?: { readonly name: string }): StartAt {
  const name = options?.name ?? "startAt"
  const { kind, value } = (startAt ?? {}) as { readonly kind?: unknown; readonly value?: unknown }
  if (kind === "first" || kind === "last" || kind === "next") return { kind }
  if (kind !== "offset" && kind !== "timestampMicros") {
    throw new InvalidError(
      `${what}: ${name}.kind is ${shown(kind)}; it must be one of "first", "last", "next", "offset", "timestampMicros"`,
    )
  }
  if (typeof value !== "bigint" || value < 0n || value > largestOffset) {
    throw new InvalidError(
      `${what}: ${name}.value is ${shown(value)}; it must be a bigint from 0n to ${largestOffset}n`,
    )
  }
  return { kind, value }
}
