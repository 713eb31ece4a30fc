/** What the checks are told: each thing that happened, with all that is known about it. */
import type { OffsetEntry, ReadLimits } from "@millrace/contract"
import type { History } from "../backend/sim-topic.ts"
import type { LaneView } from "./lane-view.ts"
import type { Ledger } from "./ledger.ts"
import type { Owner } from "./owner.ts"
import type { Program } from "./program.ts"

/** A message that a program gets. The lane is as it was before. */
export interface HandOut {
  readonly program: Program
  readonly lane: LaneView
  readonly offset: number
  readonly history: History
  readonly ledger: Ledger
}

/** A store that a program's core asks for, or that the backend has done. */
export interface StoreFact {
  readonly program: Program
  readonly owner: Owner
  readonly entry: OffsetEntry
  /** Absent before the first message of the partition. */
  readonly lane: LaneView | undefined
  readonly ledger: Ledger
}

/** A partition that a program is done with: given back by a member, or read by a named consumer that was shut down. */
export interface EndFact {
  readonly program: Program
  readonly owner: Owner
  readonly lane: LaneView
  /** What is stored of it, as the next offset; 0 when nothing is. */
  readonly stored: number
}

/** One promise about consumers, and how a breach of it is seen. Each method answers what is wrong. */
export interface ReadingCheck {
  readonly name: string
  handedOut?(fact: HandOut): string | undefined
  /** The core asks for a store. */
  storing?(fact: StoreFact): string | undefined
  /** The backend has stored it. */
  stored?(fact: StoreFact): string | undefined
  /** A member has given a partition back. */
  released?(fact: EndFact): string | undefined
  /** A named consumer was shut down, with time enough and without an error. */
  ended?(fact: EndFact): string | undefined
  polled?(fact: { readonly program: Program; readonly limits: ReadLimits }): string | undefined
}
