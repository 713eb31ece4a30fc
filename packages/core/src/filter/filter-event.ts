/**
 * What the topic `millrace/filters` holds: one record a mutation of one group's filter, as JSON. The key names the group; whether a
 * mutation is carried out is decided by whoever reads the log, from what lies before it, so that all readers come to the same.
 *
 *     {"millrace":"filter","version":1,"operation":"01J…","stream":"s","topic":"t","group":"g","command":{"type":"configure","text":"{…}"}}
 */
import type { TopicName } from "@millrace/contract"

/** The format that is written, and the newest that is read. */
export const filterEventVersion = 1

/** Whose filter: a group as it reads one topic. */
export interface FilterGroup extends TopicName {
  readonly group: string
}

/** What a mutation asks for. `text` is a filter in its canonical text. */
export type FilterCommand =
  | { readonly type: "configure"; readonly text: string }
  | { readonly type: "bind"; readonly revision: number }
  | { readonly type: "revise"; readonly expected: number; readonly text: string }
  | { readonly type: "enable"; readonly revision: number; readonly enabled: boolean }
  | { readonly type: "release" }
  | { readonly type: "delete" }

/** One mutation. The operation makes it recognisable: what was recorded under it once is not carried out again. */
export interface FilterEvent {
  readonly group: FilterGroup
  readonly operation: string
  readonly command: FilterCommand
}

/** A mutation that a newer Millrace wrote: the group's filter cannot be told any more. */
export interface NewerFilterEvent {
  readonly group: FilterGroup
  readonly version: number
}

const utf8 = new TextEncoder()
const strictUtf8 = new TextDecoder("utf-8", { fatal: true })

/** One text a group, injective: names hold no control characters. */
export function filterGroupKey({ stream, topic, group }: FilterGroup): string {
  return `${stream}\n${topic}\n${group}`
}

/** The record's key. */
export function filterEventKey(group: FilterGroup): Uint8Array {
  return utf8.encode(filterGroupKey(group))
}

/** The record's payload. */
export function encodeFilterEvent({ group, operation, command }: FilterEvent): Uint8Array {
  const { stream, topic, group: name } = group
  const event = { millrace: "filter", version: filterEventVersion, operation, stream, topic, group: name, command }
  return utf8.encode(JSON.stringify(event))
}

/** What a payload says; `undefined` for what is no event of a filter, which anybody may have written. */
export function decodeFilterEvent(payload: Uint8Array | null): FilterEvent | NewerFilterEvent | undefined {
  const event = payload === null ? undefined : parsed(payload)
  if (event === undefined || event.millrace !== "filter") return undefined
  const { version, operation, stream, topic, group: name } = event
  if (typeof stream !== "string" || typeof topic !== "string" || typeof name !== "string") return undefined
  const group = { stream, topic, group: name }
  if (typeof version !== "number" || !Number.isSafeInteger(version) || version < 1) return undefined
  if (version > filterEventVersion) return { group, version }
  const command = commandOf(event.command)
  if (typeof operation !== "string" || operation === "" || command === undefined) return undefined
  return { group, operation, command }
}

function parsed(payload: Uint8Array): Record<string, unknown> | undefined {
  try {
    return objectOf(JSON.parse(strictUtf8.decode(payload)))
  } catch {
    return undefined
  }
}

/** The command with exactly the members that its type has. */
function commandOf(value: unknown): FilterCommand | undefined {
  const { type, text, revision, expected, enabled } = objectOf(value) ?? {}
  switch (type) {
    case "configure":
      return typeof text === "string" ? { type, text } : undefined
    case "bind":
      return isCount(revision) ? { type, revision } : undefined
    case "revise":
      return isCount(expected) && typeof text === "string" ? { type, expected, text } : undefined
    case "enable":
      return isCount(revision) && typeof enabled === "boolean" ? { type, revision, enabled } : undefined
    case "release":
    case "delete":
      return { type }
    default:
      return undefined
  }
}

function objectOf(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : undefined
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}
