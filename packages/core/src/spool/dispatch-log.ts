import type { Identity, Lineage } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { BatchJournal } from "../producer/batch-journal.ts"
import type { PendingBatch } from "../producer/pending-batch.ts"
import { ForwardCall } from "./forward-call.ts"
import type { Journal } from "./journal.ts"
import { appendOffsets } from "./offset-runs.ts"

/** Writes down what goes out before it does, in the journal of the spool. */
export class DispatchLog implements BatchJournal {
  readonly #journal: Journal
  readonly #clock: Clock

  constructor(journal: Journal, clock: Clock) {
    this.#journal = journal
    this.#clock = clock
  }

  dispatching(
    batch: PendingBatch,
    under: { readonly lineage: Lineage; readonly identity: (Identity & { readonly sequence: number }) | undefined },
  ): Promise<void> | undefined {
    const { identity, lineage } = under
    if (batch.ordinal !== -1) {
      if (isSame(batch.numberedAs, identity)) return undefined
      this.#journal.note({ kind: "void", ordinals: [batch.ordinal] })
    }
    const { stamp } = batch
    const runs: { first: bigint; length: number }[] = []
    let lane = -1
    batch.eachPart((call, index, length) => {
      if (!(call instanceof ForwardCall)) throw new Error("spool: a batch holds records that are not the spool's")
      lane = call.owner.lane
      for (const run of call.runsOf(index, length)) appendOffsets(runs, run.first, run.length)
    })
    batch.ordinal = this.#journal.takeOrdinal()
    batch.numberedAs = identity
    return this.#journal.dispatch({
      ordinal: batch.ordinal,
      lane,
      lineage,
      partition: batch.partition,
      identity,
      id: stamp.id,
      timestampMicros: stamp.timestampMicros,
      resend: stamp.resend,
      isMoved: batch.isMoved,
      skipped: batch.skipped,
      sentMicros: this.#clock.nowMicros(),
      runs,
    })
  }

  settled(batch: PendingBatch): void {
    if (batch.ordinal !== -1) this.#journal.note({ kind: "settled", ordinals: [batch.ordinal] })
  }

  voided(batch: PendingBatch): void {
    if (batch.ordinal !== -1) this.#journal.note({ kind: "void", ordinals: [batch.ordinal] })
    batch.ordinal = -1
  }
}

function isSame(
  a: (Identity & { readonly sequence: number }) | undefined,
  b: (Identity & { readonly sequence: number }) | undefined,
): boolean {
  if (a === undefined || b === undefined) return a === b
  return a.producerId === b.producerId && a.epoch === b.epoch && a.sequence === b.sequence
}
