import { MillraceError } from "@millrace/contract"
import type { Fate } from "./fate.ts"
import type { SimBatch } from "./sim-batch.ts"

/** One batch on its way through an ingest. */
export interface Passage {
  /** It arrives. @throws what `store` throws, and MillraceError of kind `throttled` behind one that did not come */
  pass<T>(store: () => T): T
  /** It does not arrive. */
  readonly miss: () => void
  /** Its caller has heard. */
  end(): void
}

/**
 * Batches of one partition that are stored as they come, several on their way, without offsets (as NATS with its fast ingest). When one
 * does not come, those behind it are refused until its caller has heard of that, so that none overtakes it.
 */
export class Ingest {
  readonly #underWay = new Map<Passage, { readonly batch: SimBatch; readonly isMute: boolean }>()
  #isBroken = false

  begin(batch: SimBatch, { kind }: Fate): Passage {
    // A caller that gave up waiting sends the batch again, or gives it up.
    for (const [passage, other] of this.#underWay) {
      if (other.isMute && (other.batch === batch || other.batch.isReleased)) this.#underWay.delete(passage)
    }
    if (this.#underWay.size === 0) this.#isBroken = false
    const passage: Passage = {
      pass: (store) => {
        if (this.#isBroken) throw new MillraceError("throttled", "a batch ahead of this one did not come")
        try {
          return store()
        } catch (error) {
          this.#isBroken = true
          throw error
        }
      },
      miss: () => {
        this.#isBroken = true
      },
      end: () => void this.#underWay.delete(passage),
    }
    this.#underWay.set(passage, { batch, isMute: kind === "hole" || kind === "silence" })
    return passage
  }
}
