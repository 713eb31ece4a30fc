import { DiskFullError, type MillraceError, StorageError } from "@millrace/contract"
import type { ControlRequest, Fate, FaultPlan } from "./backend/fate.ts"
import type { Chance } from "./chance.ts"
import type { Trace } from "./trace.ts"

/**
 * The disk of a spool: writes in the order of the calls and loses nothing that it has answered; of what it was told when its process died
 * the first few may be there, and nothing behind them. It can be full, and it can break.
 */
export class SpoolDisk implements FaultPlan {
  /** Of the next kill: how many requests that were on their way are carried out. */
  survivors = 0
  /** Nothing more fits. */
  isFull = false
  /** The next write fails for good: the process has to stop. */
  breaks = false
  readonly #chance: Chance
  readonly #writeMs: number
  readonly #trace: Trace

  constructor(chance: Chance, writeMs: number, trace: Trace) {
    this.#chance = chance
    this.#trace = trace
    this.#writeMs = writeMs
  }

  append(place: { readonly topic: string; readonly count: number }): Fate {
    this.#trace.note("store", `append ${place.count} to ${place.topic}${this.isFull ? ", which is full" : ""}`)
    return this.#write()
  }

  control(request: ControlRequest): Fate {
    this.#trace.note("store", request)
    return request === "create" || request === "change" ? this.#write() : this.#fate("answer")
  }

  straggles(): number | undefined {
    return this.survivors-- > 0 ? 0 : undefined
  }

  #write(): Fate {
    if (this.breaks) {
      this.breaks = false
      const isKnown = this.#chance.happens(0.5)
      const error = new StorageError("the disk is broken", { outcome: isKnown ? "rejected" : "unknown" })
      return this.#fate(isKnown ? "refuse" : this.#chance.of(["lose", "vanish"]), error)
    }
    return this.isFull ? this.#fate("refuse", new DiskFullError("the disk is full")) : this.#fate("answer")
  }

  #fate(kind: Fate["kind"], error?: MillraceError): Fate {
    const times = { arriveMs: this.#writeMs, answerMs: this.#chance.below(3) }
    return error === undefined ? { kind, ...times } : { kind, ...times, error }
  }
}
