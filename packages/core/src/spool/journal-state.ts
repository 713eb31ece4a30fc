import type { TopicName } from "@millrace/contract"
import type { Dispatch, JournalEntry } from "./journal-entry.ts"
import { endOf } from "./offset-runs.ts"

/** A batch that went out, perhaps, and whose records are not all below the low-water mark of their lane. */
export interface KnownDispatch {
  readonly dispatch: Dispatch
  /** Confirmed, or handed over: it needs no resend. */
  settled: boolean
  /** Behind its highest offset. */
  readonly end: bigint
}

/** One lane as the journal knows it. */
export interface KnownLane {
  readonly lane: number
  readonly name: TopicName
  /** Everything below was delivered or handed over. */
  low: bigint
}

/**
 * What a journal has told so far. Pure, and the same whether an entry is told once or twice, so that a restart comes to the state that
 * the last synced record left.
 */
export class JournalState {
  readonly lanes: Map<number, KnownLane> = new Map()
  readonly dispatches: Map<number, KnownDispatch> = new Map()
  /** The ordinal of the next dispatch. */
  nextOrdinal = 0

  apply(entry: JournalEntry): void {
    switch (entry.kind) {
      case "snapshot":
        this.lanes.clear()
        this.dispatches.clear()
        break
      case "lane": {
        const { lane, stream, topic } = entry
        if (!this.lanes.has(lane)) this.lanes.set(lane, { lane, name: { stream, topic }, low: 0n })
        break
      }
      case "dispatch":
        this.#dispatched(entry.dispatch, entry.settled)
        break
      case "settled":
        for (const ordinal of entry.ordinals) {
          const known = this.dispatches.get(ordinal)
          if (known !== undefined) known.settled = true
        }
        break
      case "void":
        for (const ordinal of entry.ordinals) this.dispatches.delete(ordinal)
        break
      case "low":
        this.#raise(entry.lane, entry.offset)
        break
    }
  }

  /** Entries that tell all of it to a state that knows nothing. */
  snapshot(): JournalEntry[] {
    const entries: JournalEntry[] = [{ kind: "snapshot" }]
    for (const { lane, name, low } of this.lanes.values()) {
      entries.push({ kind: "lane", lane, stream: name.stream, topic: name.topic })
      entries.push({ kind: "low", lane, offset: low })
    }
    for (const { dispatch, settled } of this.dispatches.values()) entries.push({ kind: "dispatch", dispatch, settled })
    return entries
  }

  #dispatched(dispatch: Dispatch, settled: boolean): void {
    this.nextOrdinal = Math.max(this.nextOrdinal, dispatch.ordinal + 1)
    const end = endOf(dispatch.runs)
    const low = this.lanes.get(dispatch.lane)?.low ?? 0n
    if (end <= low) return
    this.dispatches.set(dispatch.ordinal, { dispatch, settled, end })
  }

  #raise(lane: number, offset: bigint): void {
    const known = this.lanes.get(lane)
    if (known === undefined || known.low >= offset) return
    known.low = offset
    for (const [ordinal, { dispatch, end }] of this.dispatches) {
      if (dispatch.lane === lane && end <= offset) this.dispatches.delete(ordinal)
    }
  }
}
