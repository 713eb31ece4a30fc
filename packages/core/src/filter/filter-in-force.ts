import { type CheckedFilter, InvalidError, MillraceError, parseFilterText, UnsupportedError } from "@millrace/contract"
import type { FilterGroup } from "./filter-event.ts"
import { type FilterView, newerFilter } from "./filter-log.ts"

/**
 * What a group's readers do with its filter. `key` tells two of them apart: equal keys, equal selection. Blocked: nothing may be read,
 * since handing out everything, or what an older filter selects, would be worse.
 */
export type FilterInForce =
  | { readonly kind: "none"; readonly key: string }
  | { readonly kind: "selects"; readonly key: string; readonly filter: CheckedFilter }
  | { readonly kind: "blocked"; readonly key: string; readonly error: MillraceError }

/** A group that reads everything. */
export const noFilter: FilterInForce = { kind: "none", key: "none" }

/** The filter that a group's readers apply now. */
export function filterInForce(group: FilterGroup, { machine, newer }: FilterView): FilterInForce {
  if (newer !== undefined) return { kind: "blocked", key: `newer ${newer}`, error: newerFilter(group, newer) }
  const revision = machine.binding?.revision
  if (revision === undefined) return noFilter
  if (revision.state !== "enabled") {
    return { kind: "blocked", key: `disabled ${revision.revision}`, error: disabledRevision(group, revision.revision) }
  }
  try {
    return { kind: "selects", key: revision.digest, filter: parseFilterText(revision.text) }
  } catch (error) {
    return { kind: "blocked", key: `unusable ${revision.digest}`, error: unusable(group, revision.revision, error) }
  }
}

/** Nothing is read while the revision in force is disabled (table 1.9: revision_disabled). */
function disabledRevision({ stream, topic, group }: FilterGroup, revision: number): InvalidError {
  return new InvalidError(
    `group ${JSON.stringify(group)}: revision ${revision} of its filter is disabled, so that nothing is read: enable it or another one, or release the filter`,
    { context: { stream, topic, group, reason: "revision_disabled", revision } },
  )
}

/** The stored text is no filter that this version evaluates. */
function unusable({ stream, topic, group }: FilterGroup, revision: number, cause: unknown): UnsupportedError {
  const why = cause instanceof MillraceError ? cause.message : String(cause)
  return new UnsupportedError(
    `group ${JSON.stringify(group)}: revision ${revision} of its filter cannot be evaluated here: ${why}`,
    { cause, context: { stream, topic, group, reason: "unsupported", revision } },
  )
}
