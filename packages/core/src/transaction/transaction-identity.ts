import { FencedError, type Identity, type TopicName, TransactionAbortedError } from "@millrace/contract"
import type { Identities, IdentityUser } from "../producer/identity-source.ts"

/**
 * The identity of a transaction's session, as partitions number their batches under it. It is the session's to change, with a `begin` or an
 * `init`: a partition that cannot go on with it fails, and the transaction with it.
 */
export class TransactionIdentity implements Identities {
  readonly #what: string
  #current: Identity | undefined
  /** Some partition cannot number batches under the present one any more. */
  #isSpent = false

  /** @param what How errors call the producer. */
  constructor(what: string) {
    this.#what = what
  }

  /** The same object as long as it is the same identity: partitions begin to count anew with another one. */
  get current(): Identity | undefined {
    return this.#current
  }

  readonly isRenewing = false

  /** Whether nothing more can be numbered until the session has another one. */
  get isSpent(): boolean {
    return this.#isSpent
  }

  /** What the session says now. */
  adopt({ producerId, epoch }: Identity): void {
    const current = this.#current
    if (current?.producerId === producerId && current.epoch === epoch) return
    this.#current = { producerId, epoch }
    this.#isSpent = false
  }

  /** What was numbered under the present one was given up: partitions that begin to count anew need another. */
  abandon(): void {
    if (this.#current !== undefined) this.#isSpent = true
  }

  register(_user: IdentityUser): () => void {
    return () => {}
  }

  noticeSettled(): void {}

  acquire(topic: TopicName): Promise<Identity> {
    const current = this.#current
    return current === undefined ? this.#lost(topic, false) : Promise.resolve(current)
  }

  renew(topic: TopicName, spent: Identity, { fenced }: { readonly fenced: boolean }): Promise<Identity> {
    if (this.#current !== undefined && this.#current !== spent) return Promise.resolve(this.#current)
    this.#isSpent = true
    return this.#lost(topic, fenced)
  }

  /** Another incarnation of a topic counts from 0 under the same identity. */
  spend(): void {}

  #lost({ topic }: TopicName, fenced: boolean): Promise<never> {
    if (fenced) return Promise.reject(new FencedError(`${this.#what}: a newer incarnation of its id has taken over`))
    const message = `${this.#what}: the records for topic "${topic}" do not continue what the backend has of the transaction: abort it`
    return Promise.reject(new TransactionAbortedError(message))
  }
}
