import type { Buffer } from "node:buffer"
import type { KeyObject } from "node:crypto"

/** Subkeys that are kept for the next record; more producers than that at once are derived again. @internal */
export const subkeysKept = 1024

/** A subkey, and the associated data of its last topic. */
export interface KnownSubkey {
  readonly key: KeyObject
  /** The envelope's bytes before the ciphertext, with the form and the counter of some record. */
  readonly prefix: Buffer
  aad: Buffer
  stream: string
  topic: string
}

/** The subkeys that were used last, by key id and salt. Whoever may write to a topic can make up salts, so that it is bounded. */
export class SubkeyCache {
  /** The least recently used first. */
  readonly #known = new Map<string, KnownSubkey>()

  get size(): number {
    return this.#known.size
  }

  /** The subkey, made where it is not known, as the most recently used. */
  use(name: string, make: () => KnownSubkey): KnownSubkey {
    const known = this.#known.get(name) ?? make()
    this.#known.delete(name)
    this.#known.set(name, known)
    if (this.#known.size > subkeysKept) this.#known.delete(this.#known.keys().next().value as string)
    return known
  }
}
