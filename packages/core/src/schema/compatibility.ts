/** Compatibility settings, and what they ask of a new version. */
import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { formatOf } from "./formats.ts"
import type { Compatibility, Incompatibility, SchemaVersion } from "./schema.ts"
import type { Reason, ResolvedSchema } from "./schema-format.ts"

/** What holds where nobody set anything, as in Confluent's registry. */
export const defaultCompatibility: Compatibility = "backward"

interface Demand {
  readonly backward: boolean
  readonly forward: boolean
  readonly all: boolean
}

const demands: Readonly<Record<Compatibility, Demand>> = {
  none: { backward: false, forward: false, all: false },
  backward: { backward: true, forward: false, all: false },
  backwardTransitive: { backward: true, forward: false, all: true },
  forward: { backward: false, forward: true, all: false },
  forwardTransitive: { backward: false, forward: true, all: true },
  full: { backward: true, forward: true, all: false },
  fullTransitive: { backward: true, forward: true, all: true },
}

/** @throws InvalidError for anything else */
export function checkCompatibility(value: unknown): Compatibility {
  if (typeof value === "string" && Object.hasOwn(demands, value)) return value as Compatibility
  const allowed = Object.keys(demands).map(shown).join(", ")
  throw new InvalidError(`compatibility ${shown(value)} is not one of ${allowed}`)
}

/** Of `count` versions, those that a new one is compared with, newest first. */
export function demandedVersions(compatibility: Compatibility, count: number): number[] {
  const { backward, forward, all } = demands[compatibility]
  if (count === 0 || !(backward || forward)) return []
  return all ? Array.from({ length: count }, (_, index) => count - index) : [count]
}

/** Why a new version does not get on with an existing one, by what the setting asks for. */
export function incompatibilities(
  compatibility: Compatibility,
  added: ResolvedSchema,
  existing: { readonly version: SchemaVersion; readonly resolved: ResolvedSchema },
): Incompatibility[] {
  const { backward, forward } = demands[compatibility]
  const { version } = existing.version
  if (added.type !== existing.resolved.type) {
    const message = `the type is "${added.type}", and that of the version is "${existing.resolved.type}"`
    return [{ version, direction: backward ? "backward" : "forward", path: "", message }]
  }
  const compared = (reader: ResolvedSchema, writer: ResolvedSchema): Reason[] => {
    try {
      return formatOf(added.type).incompatibilities(reader, writer)
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      return [{ path: "", message: "types are within each other so deep that it cannot be judged" }]
    }
  }
  const placed = (direction: "backward" | "forward", reasons: Reason[]): Incompatibility[] =>
    reasons.map(({ path, message }) => ({ version, direction, path, message }))
  return [
    ...(backward ? placed("backward", compared(added, existing.resolved)) : []),
    ...(forward ? placed("forward", compared(existing.resolved, added)) : []),
  ]
}
