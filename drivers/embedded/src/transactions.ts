/** The contract's transactions over a channel to the engine. */
import {
  ClosedError,
  errorFromWire,
  FencedError,
  type Identity,
  InvalidError,
  MillraceError,
  type OffsetEntry,
  type OffsetOwner,
  type PreparedTransaction,
  type StagedResult,
  type TransactionHandle,
  type TransactionSession,
  type Transactions,
} from "@millrace/contract"
import type { Channel } from "./channel.ts"
import type { Enlisted, EnlistOffsets } from "./engine/staged-offsets.ts"
import type { Begun, CompleteTransaction, Ended, EndTransaction } from "./engine/transactional.ts"
import type { TransactionRef } from "./engine/transactional-id.ts"
import type { Initialised, InitTransactional } from "./engine/transactional-init.ts"
import { toStoreEntry } from "./offset-store.ts"

/** The transactions of a session. */
export class EmbeddedTransactions implements Transactions {
  readonly #channel: Channel
  readonly #sessions = new Set<EmbeddedTransactionSession>()
  #closed = false

  constructor(channel: Channel) {
    this.#channel = channel
  }

  async init(
    transactionalId: string,
    { timeoutMs, keepPrepared }: { readonly timeoutMs: number; readonly keepPrepared: boolean },
  ): Promise<TransactionSession> {
    if (this.#closed) throw new ClosedError("the session is closed")
    const args: InitTransactional = { transactionalId, timeoutMs, keepPrepared }
    const initialised = await this.#channel.call<Initialised>("transactions.init", args)
    const session = new EmbeddedTransactionSession(this.#channel, transactionalId, {
      initialised,
      closed: (ended) => this.#sessions.delete(ended),
    })
    this.#sessions.add(session)
    return session
  }

  list(): Promise<PreparedTransaction[]> {
    return this.#channel.call("transactions.list", undefined)
  }

  /** Aborts what is open. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#sessions].map((session) => session.close()))
  }
}

/** A transaction under way, behind a handle's token. */
export class StagedWork {
  readonly ref: TransactionRef
  /** Whether something of it wants its commit synced. */
  synced = false

  constructor(ref: TransactionRef) {
    this.ref = ref
  }
}

/** The work behind a handle. @throws InvalidError for a handle of another backend */
export function stagedWork({ token }: TransactionHandle): StagedWork {
  if (token instanceof StagedWork) return token
  throw new InvalidError("the transaction was not begun by this backend")
}

/** One incarnation of a transactional id. */
class EmbeddedTransactionSession implements TransactionSession {
  identity: Identity
  prepared: string | undefined
  readonly #channel: Channel
  readonly #transactionalId: string
  readonly #incarnation: TransactionRef
  readonly #closed: (session: EmbeddedTransactionSession) => void
  /** The transaction that was begun here and has not ended, as far as is known. */
  #work: StagedWork | undefined
  /** The token of a completion whose outcome is unknown. */
  #uncertain: string | undefined
  #closing: Promise<void> | undefined

  constructor(
    channel: Channel,
    transactionalId: string,
    options: { readonly initialised: Initialised; readonly closed: (session: EmbeddedTransactionSession) => void },
  ) {
    const { identity, prepared } = options.initialised
    this.identity = identity
    this.prepared = prepared
    this.#channel = channel
    this.#transactionalId = transactionalId
    this.#incarnation = { producerId: identity.producerId, incarnation: identity.epoch, key: 0n }
    this.#closed = options.closed
  }

  async begin(): Promise<TransactionHandle> {
    this.#refuseClosed()
    const last = this.#work
    const { key, epoch } = await this.#ending(last, () =>
      this.#channel.call<Begun>("transactions.begin", last?.ref ?? this.#incarnation),
    )
    const work = new StagedWork({ ...this.#incarnation, key })
    this.#work = work
    this.identity = { producerId: this.#incarnation.producerId, epoch }
    return { transactionalId: this.#transactionalId, token: work }
  }

  async enlistOffsets(
    handle: TransactionHandle,
    { kind, name }: OffsetOwner,
    entries: readonly OffsetEntry[],
  ): Promise<void> {
    this.#refuseClosed()
    if (entries.length === 0) return
    const work = stagedWork(handle)
    const args: EnlistOffsets = { transaction: work.ref, owner: { kind, name }, entries: entries.map(toStoreEntry) }
    const { synced } = await this.#channel.call<Enlisted>("transactions.enlist", args)
    if (synced) work.synced = true
  }

  async prepare(handle: TransactionHandle): Promise<string> {
    this.#refuseClosed()
    const work = stagedWork(handle)
    // Whatever the answer: what may be prepared is ended with a sync.
    work.synced = true
    const token = await this.#channel.call<string>("transactions.prepare", work.ref)
    this.prepared = token
    return token
  }

  async commit(handle: TransactionHandle): Promise<readonly StagedResult[]> {
    this.#refuseClosed()
    const work = stagedWork(handle)
    const { results = [], lost } = await this.#ending(work, () =>
      this.#channel.call<Ended>("transactions.commit", endingOf(work)),
    )
    if (lost !== undefined) throw errorFromWire(lost)
    return results
  }

  async abort(handle: TransactionHandle): Promise<void> {
    this.#refuseClosed()
    const work = stagedWork(handle)
    await this.#ending(work, () => this.#channel.call<void>("transactions.abort", endingOf(work)))
  }

  async complete(token: string): Promise<"committed" | "aborted"> {
    this.#refuseClosed()
    const args: CompleteTransaction = {
      transaction: this.#incarnation,
      token,
      again: this.#uncertain === token,
    }
    try {
      const { end, lost } = await this.#channel.call<Ended>("transactions.complete", args)
      this.#uncertain = undefined
      this.#work = undefined
      this.prepared = undefined
      if (lost !== undefined) throw errorFromWire(lost)
      return end
    } catch (error) {
      if (error instanceof MillraceError && error.outcome === "unknown") this.#uncertain = token
      throw error
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Runs what ends a transaction. It has ended when that succeeds, and when it is told that nothing of it can be any more. */
  async #ending<T>(work: StagedWork | undefined, end: () => Promise<T>): Promise<T> {
    try {
      const answer = await end()
      this.#ended(work)
      return answer
    } catch (error) {
      if (error instanceof MillraceError && error.kind === "transaction-aborted") this.#ended(work)
      throw error
    }
  }

  #ended(work: StagedWork | undefined): void {
    if (work === undefined || this.#work !== work) return
    this.#work = undefined
    this.prepared = undefined
  }

  async #close(): Promise<void> {
    this.#closed(this)
    try {
      await this.#channel.call<void>("transactions.close", this.#incarnation)
    } catch (error) {
      // Nothing is left to close of one that was replaced, or whose store is closed.
      if (!(error instanceof FencedError || error instanceof ClosedError)) throw error
    }
  }

  #refuseClosed(): void {
    if (this.#closing !== undefined) {
      throw new ClosedError(`the session of the transactional id ${JSON.stringify(this.#transactionalId)} is closed`)
    }
  }
}

function endingOf({ ref, synced }: StagedWork): EndTransaction {
  return { transaction: ref, durability: synced ? "synced" : "written" }
}
