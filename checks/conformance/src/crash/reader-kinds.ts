/** The kinds of readers that are killed: one of each commit policy and of each way to take messages, under names of their own. */
import type { CommitPolicy } from "millrace"

/** Records that such a reader reads ahead at the most: what a kill may lose under `onRead`, beside one poll. */
export const readAhead = 40

export interface ReaderKind {
  /** Also the name of the consumer or group. */
  readonly name: string
  readonly commitPolicy: CommitPolicy
  /** `commits`: by hand, each few messages. `marks`: one message each, the last of some first. */
  readonly how: "loop" | "commits" | "marks" | "batches" | "run"
  /** Reads as a member of a group. */
  readonly member?: true
  /** The group has a filter that wants every record with an even counter. */
  readonly filtered?: true
}

export const readerKinds: readonly ReaderKind[] = [
  { name: "each", commitPolicy: { kind: "each" }, how: "loop" },
  { name: "polling", commitPolicy: { kind: "polling" }, how: "loop" },
  { name: "all", commitPolicy: { kind: "all" }, how: "loop" },
  { name: "every", commitPolicy: { kind: "every", count: 7 }, how: "loop" },
  { name: "interval", commitPolicy: { kind: "interval", intervalMs: 5 }, how: "loop" },
  { name: "intervalOrEvery", commitPolicy: { kind: "intervalOrEvery", intervalMs: 5, count: 9 }, how: "loop" },
  { name: "auto", commitPolicy: { kind: "auto", every: 10, intervalMs: 20 }, how: "loop" },
  { name: "batches", commitPolicy: { kind: "auto", every: "batch", intervalMs: false }, how: "batches" },
  { name: "commits", commitPolicy: { kind: "disabled" }, how: "commits" },
  { name: "marked", commitPolicy: { kind: "auto", after: "marked", every: 5, intervalMs: 20 }, how: "marks" },
  { name: "run", commitPolicy: { kind: "intervalOrEvery", intervalMs: 5, count: 5 }, how: "run" },
  { name: "onRead", commitPolicy: { kind: "onRead" }, how: "loop" },
  { name: "group", commitPolicy: { kind: "every", count: 7 }, how: "loop", member: true },
  { name: "group-run", commitPolicy: { kind: "each" }, how: "run", member: true },
  { name: "group-filter", commitPolicy: { kind: "every", count: 5 }, how: "loop", member: true, filtered: true },
]
