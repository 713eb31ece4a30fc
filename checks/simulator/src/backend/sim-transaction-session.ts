import type {
  Identity,
  MillraceError,
  OffsetEntry,
  OffsetOwner,
  StagedResult,
  TransactionHandle,
  TransactionSession,
  Transactions,
} from "@millrace/contract"
import type { TransactionRequest } from "./fate.ts"
import type { FaultyBackend } from "./faulty-backend.ts"
import type { Incarnation } from "./sim-coordination.ts"

/** How a transaction's session reaches the backend: what it asks is handled in the order of the calls. */
export interface TransactionLine {
  readonly backend: FaultyBackend
  readonly ask: <T>(step: TransactionRequest, work: () => T) => Promise<T>
}

/** Transactions as one session sees them. */
export function transactionsOf(line: TransactionLine): Transactions {
  const { backend, ask } = line
  return {
    init: async (transactionalId, options) => {
      const { incarnation, token, identity } = await ask("init", () => {
        const begun = backend.coordination.init(transactionalId, options)
        const { coordination } = backend
        return { incarnation: begun, token: coordination.preparedToken(begun), identity: coordination.identity(begun) }
      })
      return new SimTransactionSession(line, incarnation, { token, identity })
    },
    list: () => ask("prepared", () => backend.coordination.list()),
  }
}

/** One incarnation of a transactional id, as its process sees it. */
class SimTransactionSession implements TransactionSession {
  readonly #line: TransactionLine
  readonly #incarnation: Incarnation
  #identity: Identity
  #prepared: string | undefined

  constructor(
    line: TransactionLine,
    incarnation: Incarnation,
    told: { readonly token: string | undefined; readonly identity: Identity },
  ) {
    this.#line = line
    this.#incarnation = incarnation
    this.#identity = told.identity
    this.#prepared = told.token
  }

  get identity(): Identity {
    return this.#identity
  }

  get prepared(): string | undefined {
    return this.#prepared
  }

  async begin(): Promise<TransactionHandle> {
    const { coordination } = this.#line.backend
    const { handle, identity } = await this.#ask("begin", () => {
      const begun = coordination.begin(this.#incarnation)
      return { handle: begun, identity: coordination.identity(this.#incarnation) }
    })
    this.#identity = identity
    return handle
  }

  enlistOffsets(handle: TransactionHandle, owner: OffsetOwner, entries: readonly OffsetEntry[]): Promise<void> {
    return this.#ask("enlist", () =>
      this.#line.backend.coordination.enlist(this.#incarnation, handle, { owner, entries }),
    )
  }

  prepare(handle: TransactionHandle): Promise<string> {
    return this.#ask("prepare", () => this.#line.backend.coordination.prepare(this.#incarnation, handle))
  }

  commit(handle: TransactionHandle): Promise<readonly StagedResult[]> {
    return this.#ask("commit", () => this.#line.backend.coordination.commit(this.#incarnation, handle))
  }

  abort(handle: TransactionHandle): Promise<void> {
    return this.#ask("abort", () => this.#line.backend.coordination.abort(this.#incarnation, handle))
  }

  async complete(token: string): Promise<"committed" | "aborted"> {
    const outcome = await this.#ask("complete", () =>
      this.#line.backend.coordination.complete(this.#incarnation, token),
    )
    this.#prepared = undefined
    return outcome
  }

  async close(): Promise<void> {
    this.#line.backend.coordination.close(this.#incarnation)
  }

  #ask<T>(step: TransactionRequest, work: () => T): Promise<T> {
    const { transactionalId } = this.#incarnation
    return this.#line.ask(step, () => {
      try {
        return work()
      } catch (error) {
        this.#line.backend.transactionWatch.refused(transactionalId, error as MillraceError)
        throw error
      }
    })
  }
}
