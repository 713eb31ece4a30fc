import type { TransactedOffsets } from "../progress/transacted-offsets.ts"

/** Progress of consumers on its way into one transaction after the other, and who has to hear of the commit. */
export class TransactionOffsets {
  #enlisted: TransactedOffsets[] = []
  /** Never rejects. */
  #underWay: Promise<void> = Promise.resolve()

  /** Enlists behind what is on its way: a later entry of a partition replaces an earlier one. @throws what `request` does */
  add(offsets: TransactedOffsets, request: () => Promise<void>): Promise<void> {
    const enlisted = this.#underWay.then(request).then(() => void this.#enlisted.push(offsets))
    this.#underWay = enlisted.catch(() => {})
    return enlisted
  }

  /** Settles when nothing is on its way. Never rejects: whoever added hears of its failure. */
  settled(): Promise<void> {
    return this.#underWay
  }

  /** Takes what the transaction has: the next one begins without any. */
  take(): readonly TransactedOffsets[] {
    const enlisted = this.#enlisted
    this.#enlisted = []
    return enlisted
  }
}
