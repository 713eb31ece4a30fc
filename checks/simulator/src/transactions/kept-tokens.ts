import type { KeptToken } from "./transaction-facts.ts"

/** A coordinator outside of the log: what it was told to keep of prepared transactions, by transactional id. */
export class KeptTokens {
  readonly #tokens = new Map<string, KeptToken>()

  keep(transactionalId: string, kept: KeptToken): void {
    this.#tokens.set(transactionalId, kept)
  }

  get(transactionalId: string): KeptToken | undefined {
    return this.#tokens.get(transactionalId)
  }

  forget(transactionalId: string): void {
    this.#tokens.delete(transactionalId)
  }
}
