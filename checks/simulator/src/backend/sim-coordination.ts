import {
  FencedError,
  type Identity,
  type MillraceError,
  type OffsetEntry,
  type OffsetOwner,
  type PreparedTransaction,
  SequenceError,
  type StagedResult,
  type TopicPartition,
  TransactionAbortedError,
  type TransactionHandle,
  TransactionStateError,
} from "@millrace/contract"
import type { FaultyBackend } from "./faulty-backend.ts"
import type { SimBatch } from "./sim-batch.ts"
import type { EnlistedOffsets, SimTransaction } from "./transaction-watch.ts"

/** One incarnation of a transactional id. */
export interface Incarnation {
  readonly transactionalId: string
  readonly epoch: number
  readonly timeoutMs: number
}

/** A transaction with all that the backend knows of it. */
class Transaction implements SimTransaction {
  readonly transactionalId: string
  readonly number: number
  readonly epoch: number
  readonly beganMs: number
  readonly staged: SimBatch[] = []
  state: SimTransaction["state"] = "open"
  /** Why it cannot be committed any more. */
  flaw: MillraceError | undefined
  token: string | undefined
  preparedMicros: bigint | undefined
  results: readonly StagedResult[] | undefined
  readonly #offsets = new Map<string, { readonly owner: OffsetOwner; readonly entry: OffsetEntry }>()
  /** By partition: the sequence of each staged batch, so that one that comes again is staged once. */
  readonly sequences: Map<string, Set<number>> = new Map()

  constructor(incarnation: Incarnation, number: number, beganMs: number) {
    this.transactionalId = incarnation.transactionalId
    this.epoch = incarnation.epoch
    this.number = number
    this.beganMs = beganMs
  }

  get offsets(): readonly EnlistedOffsets[] {
    return [...this.#offsets.values()].map(({ owner, entry }) => ({ owner, entries: [entry] }))
  }

  enlist(owner: OffsetOwner, entries: readonly OffsetEntry[]): void {
    for (const entry of entries) this.#offsets.set(offsetKey(owner, entry), { owner, entry })
  }

  holds(owner: OffsetOwner, place: TopicPartition): boolean {
    return this.#offsets.has(offsetKey(owner, place))
  }
}

interface Id {
  producerId: bigint
  epoch: number
  timeoutMs: number
  /** The identity's own epoch: raised with each incarnation, and behind an abort. */
  identityEpoch: number
  sequences: Map<string, number>
  open: Transaction | undefined
  prepared: Transaction | undefined
  /** Of the present incarnation: a question about one that ended is answered like the first time. */
  ended: Map<number, Transaction>
}

/**
 * Transactions as a coordinator keeps them: which incarnation of an id counts, what is staged, and what became of it. Commits are one step.
 * No requests, no faults.
 */
export class SimCoordination {
  readonly #backend: FaultyBackend
  readonly #ids = new Map<string, Id>()
  #numbers = 0

  constructor(backend: FaultyBackend) {
    this.#backend = backend
  }

  init(
    transactionalId: string,
    { timeoutMs, keepPrepared }: { readonly timeoutMs: number; readonly keepPrepared: boolean },
  ): Incarnation {
    const id = this.#idOf(transactionalId)
    id.epoch++
    id.timeoutMs = timeoutMs
    id.ended.clear()
    this.#renew(id)
    if (id.open !== undefined) this.#abort(id, id.open, "a new incarnation")
    if (id.prepared !== undefined && !keepPrepared) this.#abort(id, id.prepared, "a new incarnation that keeps nothing")
    return { transactionalId, epoch: id.epoch, timeoutMs }
  }

  identity({ transactionalId }: Incarnation): Identity {
    const { producerId, identityEpoch } = this.#idOf(transactionalId)
    return { producerId, epoch: identityEpoch }
  }

  preparedToken({ transactionalId }: Incarnation): string | undefined {
    return this.#idOf(transactionalId).prepared?.token
  }

  /** A begin whose answer was lost leaves an empty one: the next takes its place. @throws FencedError, TransactionStateError */
  begin(incarnation: Incarnation): TransactionHandle {
    const id = this.#present(incarnation)
    if (id.prepared !== undefined) throw new TransactionStateError("a prepared transaction waits to be completed")
    if (id.open !== undefined) {
      if (id.open.staged.length > 0 || id.open.offsets.length > 0) {
        throw new TransactionStateError("a transaction is open")
      }
      this.#abort(id, id.open, "begun again")
    }
    if (this.#backend.renewsIdentities) this.#renew(id)
    const transaction = new Transaction(incarnation, ++this.#numbers, this.#backend.clock.monotonicMs())
    id.open = transaction
    this.#backend.transactionWatch.began(transaction)
    return { transactionalId: incarnation.transactionalId, token: { number: transaction.number, epoch: id.epoch } }
  }

  /** @throws FencedError, TransactionAbortedError, TransactionStateError, SequenceError, NotFoundError */
  stage(
    handle: TransactionHandle,
    batch: SimBatch,
    identity: (Identity & { readonly sequence: number }) | undefined,
  ): void {
    const { id, transaction } = this.#open(handle, identity)
    this.#backend.checkBatch(batch)
    const place = `${batch.topic.stream}/${batch.topic.topic}/${batch.partition}`
    if (identity !== undefined) {
      const known = transaction.sequences.get(place) ?? new Set()
      if (known.has(identity.sequence)) return
      const expected = id.sequences.get(place) ?? 0
      if (identity.sequence !== expected) throw new SequenceError(`sequence ${identity.sequence}, expected ${expected}`)
      id.sequences.set(place, expected + batch.count)
      transaction.sequences.set(place, known.add(identity.sequence))
    }
    transaction.staged.push(batch)
  }

  /** @throws FencedError, TransactionAbortedError, TransactionStateError, and what storing throws */
  enlist(incarnation: Incarnation, handle: TransactionHandle, { owner, entries }: EnlistedOffsets): void {
    this.#present(incarnation)
    const { transaction } = this.#open(handle, undefined)
    for (const entry of entries) {
      const refusal = this.#backend.offsets.check(owner, entry)
      if (refusal === undefined) continue
      transaction.flaw ??= refusal
      throw refusal
    }
    transaction.enlist(owner, entries)
  }

  /** @throws FencedError, TransactionAbortedError, TransactionStateError, and what storing throws */
  prepare(incarnation: Incarnation, handle: TransactionHandle): string {
    const id = this.#present(incarnation)
    if (id.prepared?.token !== undefined && id.prepared.number === numberOf(handle)) return id.prepared.token
    const { transaction } = this.#open(handle, undefined)
    this.#checkFlaws(transaction)
    transaction.state = "prepared"
    transaction.token = `${transaction.transactionalId}:${transaction.number}`
    transaction.preparedMicros = this.#backend.clock.nowMicros()
    id.open = undefined
    id.prepared = transaction
    this.#backend.transactionWatch.prepared(transaction, transaction.token)
    return transaction.token
  }

  /** @throws FencedError, TransactionAbortedError, TransactionStateError, and what storing throws */
  commit(incarnation: Incarnation, handle: TransactionHandle): readonly StagedResult[] {
    const id = this.#present(incarnation)
    const ended = id.ended.get(numberOf(handle))
    if (ended?.results !== undefined) return ended.results
    if (id.prepared !== undefined && id.prepared.number === numberOf(handle)) return this.#commit(id, id.prepared)
    return this.#commit(id, this.#open(handle, undefined).transaction)
  }

  /** @throws FencedError, TransactionStateError when it is committed */
  abort(incarnation: Incarnation, handle: TransactionHandle): void {
    const id = this.#present(incarnation)
    this.#expire(id)
    const ended = id.ended.get(numberOf(handle))
    if (ended?.state === "committed") throw new TransactionStateError("the transaction is committed")
    const transaction = [id.open, id.prepared].find((one) => one?.number === numberOf(handle))
    if (transaction !== undefined) this.#abort(id, transaction, "as it was asked for")
  }

  /** @throws FencedError, TransactionStateError when nothing is prepared */
  complete(incarnation: Incarnation, token: string): "committed" | "aborted" {
    const id = this.#present(incarnation)
    const transaction = id.prepared
    if (transaction === undefined) {
      // Asked again: the answer to the first time was lost.
      const before = [...id.ended.values()].find((one) => one.token === token)
      if (before?.state === "committed") return "committed"
      throw new TransactionStateError("nothing is prepared")
    }
    if (transaction.token !== token) {
      this.#abort(id, transaction, "completed under another token")
      return "aborted"
    }
    this.#commit(id, transaction)
    return "committed"
  }

  /** What is open of it is aborted; what is prepared stays. */
  close({ transactionalId, epoch }: Incarnation): void {
    const id = this.#idOf(transactionalId)
    if (id.epoch === epoch && id.open !== undefined) this.#abort(id, id.open, "its session is closed")
  }

  list(): PreparedTransaction[] {
    const now = this.#backend.clock.nowMicros()
    return [...this.#ids.values()].flatMap(({ prepared }) => {
      if (prepared?.token === undefined) return []
      const { transactionalId, token, staged, preparedMicros = now } = prepared
      const records = staged.reduce((sum, { count }) => sum + count, 0)
      return [{ transactionalId, token, ageMs: Math.max(0, Number(now - preparedMicros) / 1000), records }]
    })
  }

  /** The backend was restarted: what is open is aborted, what is prepared stays. */
  restart(): void {
    for (const id of this.#ids.values()) if (id.open !== undefined) this.#abort(id, id.open, "a restart")
  }

  /** The id of the prepared transaction that holds these offsets, if one does. */
  holder(owner: OffsetOwner, place: TopicPartition): string | undefined {
    for (const [id, { prepared }] of this.#ids) if (prepared?.holds(owner, place) === true) return id
    return undefined
  }

  /** The ids, and what is under way of each. */
  get open(): readonly SimTransaction[] {
    return [...this.#ids.values()].flatMap(({ open, prepared }) => [open, prepared].filter((one) => one !== undefined))
  }

  /** Somebody else begins a new incarnation of the id, without a word. */
  fence(transactionalId: string): void {
    const { timeoutMs } = this.#idOf(transactionalId)
    this.init(transactionalId, { timeoutMs, keepPrepared: true })
  }

  get transactionalIds(): readonly string[] {
    return [...this.#ids.keys()]
  }

  #commit(id: Id, transaction: Transaction): readonly StagedResult[] {
    this.#checkFlaws(transaction)
    this.#backend.transactionWatch.committing(transaction)
    transaction.state = "committed"
    if (id.open === transaction) id.open = undefined
    if (id.prepared === transaction) id.prepared = undefined
    transaction.results = transaction.staged.map((batch) => {
      const { stream, topic } = batch.topic
      const result = this.#backend.store(batch, undefined)
      return { stream, topic, partition: batch.partition, count: batch.count, ...result }
    })
    for (const { owner, entries } of transaction.offsets) {
      for (const entry of entries) this.#backend.offsets.commit(owner, entry)
    }
    id.ended.set(transaction.number, transaction)
    return transaction.results
  }

  /** @throws what keeps it from being committed; it is as it was then */
  #checkFlaws(transaction: Transaction): void {
    if (transaction.flaw !== undefined) throw transaction.flaw
    for (const batch of transaction.staged) this.#backend.checkBatch(batch)
    // What is prepared cannot be refused any more, whatever became of the claims.
    if (transaction.state === "prepared") return
    for (const { owner, entries } of transaction.offsets) {
      for (const entry of entries) {
        const refusal = this.#backend.offsets.check(owner, entry)
        if (refusal !== undefined) throw refusal
      }
    }
  }

  #abort(id: Id, transaction: Transaction, why: string): void {
    transaction.state = "aborted"
    if (id.open === transaction) id.open = undefined
    if (id.prepared === transaction) id.prepared = undefined
    id.ended.set(transaction.number, transaction)
    // What was on its way to it must not be taken for the next one's.
    this.#renew(id)
    this.#backend.transactionWatch.aborted(transaction, why)
  }

  #renew(id: Id): void {
    id.identityEpoch++
    id.sequences = new Map()
  }

  #open(
    handle: TransactionHandle,
    identity: Identity | undefined,
  ): { readonly id: Id; readonly transaction: Transaction } {
    const id = this.#idOf(handle.transactionalId)
    this.#expire(id)
    const { number, epoch } = handle.token as HandleToken
    if (epoch !== id.epoch) throw new FencedError(`another incarnation of "${handle.transactionalId}" has begun`)
    const ended = id.ended.get(number)
    if (ended?.state === "aborted") throw new TransactionAbortedError(`transaction ${number} was aborted`)
    if (ended !== undefined) throw new TransactionStateError(`transaction ${number} is committed`)
    if (id.prepared?.number === number) throw new TransactionStateError(`transaction ${number} is prepared`)
    const transaction = id.open
    if (transaction === undefined || transaction.number !== number) {
      throw new TransactionStateError(`transaction ${number} is not open`)
    }
    if (identity !== undefined && identity.epoch !== id.identityEpoch) {
      throw new FencedError(`epoch ${identity.epoch} of "${handle.transactionalId}" is old`)
    }
    return { id, transaction }
  }

  /** @throws FencedError unless it is the present incarnation */
  #present({ transactionalId, epoch }: Incarnation): Id {
    const id = this.#idOf(transactionalId)
    if (id.epoch !== epoch) throw new FencedError(`another incarnation of "${transactionalId}" has begun`)
    this.#expire(id)
    return id
  }

  #expire(id: Id): void {
    const { open, timeoutMs } = id
    if (open === undefined || this.#backend.clock.monotonicMs() - open.beganMs <= timeoutMs) return
    this.#abort(id, open, "it was open for too long")
  }

  #idOf(transactionalId: string): Id {
    let id = this.#ids.get(transactionalId)
    if (id === undefined) {
      const { producerId } = this.#backend.producers.identify(undefined)
      id = {
        producerId,
        epoch: 0,
        identityEpoch: 0,
        timeoutMs: 60_000,
        sequences: new Map(),
        open: undefined,
        prepared: undefined,
        ended: new Map(),
      }
      this.#ids.set(transactionalId, id)
    }
    return id
  }
}

/** What a handle carries. */
interface HandleToken {
  readonly number: number
  /** Of the incarnation. */
  readonly epoch: number
}

function numberOf({ token }: TransactionHandle): number {
  return (token as HandleToken).number
}

function offsetKey({ kind, name }: OffsetOwner, { stream, topic, partition }: TopicPartition): string {
  return `${kind}\n${name}\n${stream}/${topic}/${partition}`
}
