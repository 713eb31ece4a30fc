import { FencedError, type Identity } from "@millrace/contract"

/** The producer identities that a backend has given out, with their present epochs. */
export class ProducerBook {
  #last = 0n
  readonly #epochs = new Map<bigint, number>()

  /** A new identity, or the next epoch of one. @throws FencedError when that epoch is not the present one any more */
  identify(bump: Identity | undefined): Identity {
    if (bump === undefined) {
      this.#epochs.set(++this.#last, 0)
      return { producerId: this.#last, epoch: 0 }
    }
    const { producerId, epoch } = bump
    if ((this.#epochs.get(producerId) ?? 0) > epoch) throw new FencedError(`epoch ${epoch} of ${producerId} is old`)
    this.#epochs.set(producerId, epoch + 1)
    return { producerId, epoch: epoch + 1 }
  }

  isOld({ producerId, epoch }: Identity): boolean {
    return (this.#epochs.get(producerId) ?? 0) > epoch
  }

  /** Every identity that was given out. */
  get identities(): readonly bigint[] {
    return [...this.#epochs.keys()]
  }

  /** Somebody else goes on under the identity. */
  fence(producerId: bigint): void {
    this.#epochs.set(producerId, (this.#epochs.get(producerId) ?? 0) + 1)
  }
}
