/** The manifests side by side, as Markdown. */
import type { Capability, Manifest } from "@millrace/contract"

/** One row of the table: what it says, and how a manifest answers it. */
type Row = readonly [title: string, cell: (manifest: Manifest) => string]

const rows: readonly Row[] = [
  ["a resend is recognised by", ({ append }) => dedup[append.dedup]],
  ["… and counted", ({ append }) => (append.dedup === "none" ? "—" : yes(append.duplicates === "counted"))],
  ["… for certain within", ({ append }) => within(append)],
  ["message ids are looked up", ({ append }) => lookup[append.idLookup]],
  ["batches in flight, a partition: offsets confirmed", ({ append }) => inFlight(append.inFlight.offsets)],
  ["… confirmed as stored", ({ append }) => inFlight(append.inFlight.stored)],
  ["durability of a topic", ({ append }) => append.durability.map(code).join(", ")],
  ["durability of stored offsets", ({ offsets }) => offsets.durability.map(code).join(", ")],
  ["offsets that can be stored", ({ offsets }) => (offsets.range === "any" ? "any" : "1 to the end")],
  ["offsets can have holes", ({ read }) => yes(read.holes)],
  ["resolution of times", ({ read }) => `${read.timestampResolutionMicros} µs`],
  ["the sender's time", ({ read }) => origin[read.originTimestamp]],
  ["records come back with their id", ({ read }) => (read.ids === "all" ? "always" : "when it was given")],
  ["streams", ({ catalog }) => (catalog.streams === "objects" ? "objects" : "prefixes")],
  ["groups", (manifest) => groups(manifest)],
  ["filters of groups run", ({ read }) => (read.filters === "server" ? "next to the log" : "in the client")],
  ["members with a stable name", ({ staticMembers }) => able(staticMembers)],
  ["a purge", ({ catalog }) => (catalog.purge === "restarts" ? "restarts at 0" : "trims, goes on counting")],
  ["topics that expire", ({ catalog }) => able(catalog.expiry)],
  ["topics of a limited size", ({ catalog }) => able(catalog.sizeRetention)],
  ["adding partitions", ({ catalog }) => able(catalog.addPartitions)],
  ["trimming", ({ catalog }) => able(catalog.trim)],
  ["work queues", ({ queues }) => able(queues)],
  ["transactions", ({ transactions }) => able(transactions)],
  ["small state", ({ state }) => able(state)],
  ["payload, bytes at most", ({ limits }) => number(limits.payloadBytes)],
  ["headers of a record, bytes", ({ limits }) => number(limits.headersBytes)],
  ["a header's name, bytes", ({ limits }) => number(limits.headerNameBytes)],
  ["a header's value, bytes", ({ limits }) => number(limits.headerValueBytes)],
  ["a key, bytes", ({ limits }) => number(limits.keyBytes)],
  ["a name, bytes of UTF-8", ({ limits }) => number(limits.nameBytes)],
  ["partitions of a topic", ({ limits }) => number(limits.partitions)],
  ["records of a batch", ({ limits }) => number(limits.batchRecords)],
]

const dedup: Readonly<Record<Manifest["append"]["dedup"], string>> = {
  sequence: "producer and sequence",
  idWindow: "message id, in a window",
  none: "nothing: a resend may double",
}

const lookup: Readonly<Record<Manifest["append"]["idLookup"], string>> = {
  window: "in the topic's window",
  resend: "of resends",
  none: "no",
}

const origin: Readonly<Record<Manifest["read"]["originTimestamp"], string>> = {
  always: "beside the append time",
  given: "beside the append time, when given",
  only: "is the record's only time",
}

/** One column a backend, one row a property, in the order of the manifest. */
export function manifestTable(manifests: ReadonlyMap<string, Manifest>): string {
  const titles = [...manifests.keys()]
  return table(
    ["", ...titles],
    rows.map(([title, cell]) => [title, ...[...manifests.values()].map(cell)]),
  )
}

/** What is lacking, with the reason and what to use instead, one paragraph a backend. */
export function absences(manifests: ReadonlyMap<string, Manifest>): string {
  const parts: string[] = []
  for (const [title, manifest] of manifests) {
    const lines = Object.entries(capabilities(manifest)).flatMap(([what, capability]) =>
      capability.supported ? [] : [`- **${what}**: ${capability.reason}. ${capability.instead}`],
    )
    if (lines.length > 0) parts.push(`### ${title}\n\n${lines.join("\n")}`)
  }
  return parts.join("\n\n")
}

/** A Markdown table with columns as wide as their widest cell. */
export function table(head: readonly string[], body: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) =>
    Math.max(3, title.length, ...body.map((cells) => cells[column]?.length ?? 0)),
  )
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(" | ")} |`
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...body.map(line)].join("\n")
}

function capabilities({
  catalog,
  groups,
  staticMembers,
  queues,
  transactions,
  state,
}: Manifest): Record<string, Capability> {
  const { expiry, sizeRetention, addPartitions, trim } = catalog
  return {
    "topics that expire": expiry,
    "topics of a limited size": sizeRetention,
    "adding partitions": addPartitions,
    trimming: trim,
    groups,
    "members with a stable name": staticMembers,
    "work queues": queues,
    transactions,
    "small state": state,
  }
}

function groups({ groups: capability, catalog }: Manifest): string {
  if (!capability.supported) return "no"
  return catalog.groups === "objects" ? "created and deleted" : "names"
}

function within({ dedup: by, windowMs }: Manifest["append"]): string {
  if (by === "none") return "—"
  return windowMs === undefined ? "the identity's life" : `${windowMs / 1000} s`
}

function able(capability: Capability): string {
  return yes(capability.supported)
}

function yes(is: boolean): string {
  return is ? "yes" : "no"
}

function inFlight(count: number): string {
  return count === 0 ? "—" : String(count)
}

function code(text: string): string {
  return `\`${text}\``
}

function number(value: number): string {
  return value.toLocaleString("en-US")
}
