import type { Manifest } from "@millrace/contract"
import type { History } from "../backend/sim-topic.ts"
import type { ProgramHistory } from "../workload/history.ts"
import type { Occurrences } from "./occurrences.ts"

/** All that is known when a simulation is over: what the program did and heard, and what the backend has. */
export interface Evidence {
  readonly manifest: Manifest
  readonly program: ProgramHistory
  readonly histories: readonly History[]
  readonly occurrences: Occurrences
  /** Nothing went wrong on the backend's side, so that nothing may have failed. */
  readonly isCalm: boolean
  /** Payloads above this are refused by the backend, in bytes. */
  readonly largestRecordBytes: number
  /** What each lane that has a buffer may hold in it, in bytes. */
  readonly budgets: ReadonlyMap<number, number>
}

/** A promise, and the check that finds where it was broken. */
export interface Invariant {
  readonly name: string
  /** One sentence a breach; none when it held. */
  check(evidence: Evidence): Iterable<string>
}
