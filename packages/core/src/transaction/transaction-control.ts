import {
  ClosedError,
  type MillraceError,
  type StagedResult,
  type TransactionHandle,
  type TransactionSession,
} from "@millrace/contract"
import type { AttemptSettings } from "../client/attempts.ts"
import type { ClientContext } from "../client/context.ts"
import { shown } from "../client/options.ts"
import type { Destination } from "../producer/lane.ts"
import { millraceError } from "../producer/sender.ts"
import type { StatisticsCounter } from "../producer/statistics.ts"
import type { TransactedOffsets } from "../progress/transacted-offsets.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { CallUnderWay } from "./call-under-way.ts"
import { TransactionMachine, type TransactionState } from "./transaction.machine.ts"
import { ask, consequenceOf, type Question } from "./transaction-asking.ts"
import { isOver, mustAbort, numbersLost } from "./transaction-errors.ts"
import { TransactionOffsets } from "./transaction-offsets.ts"
import { TransactionSender } from "./transaction-sender.ts"
import type { TransactionalSettings } from "./transactional-options.ts"

/** One transaction as its guard and its producer know it. */
export interface OpenTransaction {
  ending: "open" | "prepared" | "committed" | "aborted" | "unknown"
}

/** A transactional producer without its public face: the state, the session and the sender, and the order of what is asked of them. */
export class TransactionControl {
  readonly what: string
  readonly #client: ClientContext
  readonly #settings: TransactionalSettings
  readonly #machine: TransactionMachine
  readonly #sender: TransactionSender
  readonly #abandon = new AbortController()
  readonly #attempts: AttemptSettings & { readonly signal: AbortSignal }
  #session: TransactionSession | undefined
  #handle: TransactionHandle | undefined
  #open: OpenTransaction | undefined
  /** Of a transaction that this producer has prepared itself. */
  #token: string | undefined
  /** Requests for a session. */
  #inits = 0
  readonly #offsets = new TransactionOffsets()
  readonly #calls = new CallUnderWay()

  constructor(client: ClientContext, settings: TransactionalSettings, statistics: StatisticsCounter) {
    this.what = settings.what
    this.#client = client
    this.#settings = settings
    this.#machine = new TransactionMachine(settings.what)
    const { retries, retryBackoffMs } = settings.publisher
    const { signal } = this.#abandon
    this.#attempts = { timeoutMs: client.publish.timeoutMs, retries, retryBackoffMs, signal }
    this.#sender = new TransactionSender(client, settings, { statistics, failed: (error) => this.#hold(error) })
  }

  get state(): TransactionState {
    return this.#machine.state
  }

  get session(): TransactionSession | undefined {
    return this.#session
  }

  /** Why the transaction can only be aborted. */
  get held(): MillraceError | undefined {
    return this.#machine.held
  }

  get publishers(): TransactionSender["publishers"] {
    return this.#sender.publishers
  }

  /** Settles when nothing is asked of the backend any more. */
  idle(): Promise<void> {
    return this.#calls.idle()
  }

  init(keepPrepared: boolean): Promise<void> {
    this.#machine.call("init")
    return this.#calls.track(this.#init(keepPrepared))
  }

  begin(): Promise<OpenTransaction> {
    this.#machine.call("begin")
    return this.#calls.track(this.#begin())
  }

  /** @throws FencedError, or what has made the producer useless */
  assertLiving(): void {
    this.#machine.assertLiving()
  }

  /** @throws as `Transaction.send` */
  send(of: OpenTransaction, record: SendableRecord, to: Destination): Promise<void> {
    this.assert(of, "send")
    return this.#sender.send(record, to)
  }

  /** The same for a record that is to be stored as it is, encrypted or not. */
  sendAsIs(of: OpenTransaction, record: SendableRecord, to: Destination): Promise<void> {
    this.assert(of, "send")
    return this.#sender.sendAsIs(record, to)
  }

  sendAll(of: OpenTransaction, records: readonly SendableRecord[], to: Destination): Promise<void> {
    this.assert(of, "send")
    return this.#sender.sendAll(records, to)
  }

  /** @throws TransactionStateError, and TransactionAbortedError once the transaction holds an error */
  assert(of: OpenTransaction, call: "send" | "sendOffsets"): void {
    this.#own(of, call)
    this.#machine.assert(call)
    const { held } = this.#machine
    if (held !== undefined) throw mustAbort(this.what, held)
  }

  async sendOffsets(of: OpenTransaction, offsets: TransactedOffsets): Promise<void> {
    this.assert(of, "sendOffsets")
    if (offsets.entries.length === 0) return
    const session = this.#live
    const handle = this.#handle as TransactionHandle
    const enlisted = this.#offsets.add(offsets, () =>
      this.#ask({
        what: `storing offsets of ${offsets.owner.kind} ${shown(offsets.owner.name)}`,
        request: async () => {
          await offsets.ready()
          await session.enlistOffsets(handle, offsets.owner, offsets.entries)
        },
        repeatable: true,
      }),
    )
    try {
      await enlisted
    } catch (thrown) {
      const error = millraceError(thrown)
      // Whether they are in it or not: without them it must not commit.
      if (of.ending === "open") this.#hold(error)
      throw error
    }
  }

  prepare(of: OpenTransaction): Promise<string> {
    this.#own(of, "prepare")
    this.#machine.call("prepare")
    return this.#calls.track(this.#prepare(of))
  }

  commit(of: OpenTransaction): Promise<readonly StagedResult[]> {
    this.#own(of, "commit")
    this.#machine.call("commit")
    return this.#calls.track(this.#commit(of))
  }

  abort(of: OpenTransaction): Promise<void> {
    if (of.ending === "aborted") return Promise.resolve()
    this.#own(of, "abort")
    this.#machine.call("abort")
    return this.#calls.track(this.#abort(of))
  }

  complete(token: string): Promise<"committed" | "aborted"> {
    this.#machine.call("complete")
    return this.#calls.track(this.#complete(token))
  }

  /** A guard that nobody ends any more, and whose abort has failed. */
  dropped(of: OpenTransaction): void {
    if (this.#open !== of || of.ending !== "open") return
    of.ending = "unknown"
    this.#machine.outcome({ kind: "doubtful" })
  }

  /**
   * Ends for good: what is open is aborted, what is prepared stays.
   * @param late Gives up what is under way at once.
   */
  async close(): Promise<void> {
    while (this.#calls.busy) await this.#calls.idle()
    const open = this.#open
    try {
      if (open !== undefined && this.#machine.state === "InTransaction") await this.abort(open)
    } finally {
      this.#sender.end()
      const session = this.#session
      this.#session = undefined
      await session?.close()
    }
  }

  /** The time of `close` is over: whatever waits ends now. */
  giveUp(error: MillraceError): void {
    this.#abandon.abort(error)
    this.#sender.giveUp(error)
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  async #init(keepPrepared: boolean): Promise<void> {
    const { transactionalId, timeoutMs } = this.#settings
    const former = this.#session
    this.#forget("unknown")
    try {
      const session = await this.#ask({
        what: `initializing transactional id ${shown(transactionalId)}`,
        request: () => this.#newSession(transactionalId, { timeoutMs, keepPrepared }),
        repeatable: true,
      })
      this.#session = session
      this.#token = session.prepared
      this.#sender.identity.adopt(session.identity)
      this.#machine.outcome({ kind: "initialized", prepared: session.prepared !== undefined })
    } catch (thrown) {
      // One that still comes is nobody's.
      this.#inits++
      throw this.#refused(thrown)
    }
    // It is fenced by now, and has nothing more to say.
    if (former !== undefined && former !== this.#session) await former.close().catch(() => {})
  }

  /** One that comes when nobody waits for it any more is closed again. */
  async #newSession(
    transactionalId: string,
    options: { readonly timeoutMs: number; readonly keepPrepared: boolean },
  ): Promise<TransactionSession> {
    const turn = ++this.#inits
    const session = await this.#client.session.transactions.init(transactionalId, options)
    if (turn !== this.#inits || this.#abandon.signal.aborted) await session.close().catch(() => {})
    return session
  }

  async #begin(): Promise<OpenTransaction> {
    const session = this.#live
    try {
      const handle = await this.#ask({
        what: "beginning a transaction",
        request: () => session.begin(),
        repeatable: false,
      })
      this.#sender.identity.adopt(session.identity)
      if (this.#sender.identity.isSpent) {
        // A transaction before has left numbers behind that nobody knows, and the identity is the same.
        await session.abort(handle).catch(() => {})
        this.#machine.outcome({ kind: "doubtful" })
        throw numbersLost(this.what)
      }
      this.#handle = handle
      this.#sender.begin(handle)
    } catch (thrown) {
      throw this.#machine.state === "InTransaction" ? this.#refused(thrown) : thrown
    }
    const open: OpenTransaction = { ending: "open" }
    this.#open = open
    this.#offsets.take()
    return open
  }

  async #prepare(of: OpenTransaction): Promise<string> {
    const handle = this.#handle as TransactionHandle
    await this.#drain()
    try {
      const token = await this.#ask({
        what: "preparing the transaction",
        request: () => this.#live.prepare(handle),
        repeatable: false,
      })
      this.#token = token
      of.ending = "prepared"
      this.#machine.outcome({ kind: "prepared" })
      return token
    } catch (thrown) {
      throw this.#refused(thrown)
    }
  }

  async #commit(of: OpenTransaction): Promise<readonly StagedResult[]> {
    const handle = this.#handle as TransactionHandle
    if (of.ending === "open") await this.#drain()
    const results = await this.#end(() => this.#live.commit(handle), "committing the transaction")
    this.#committed()
    return results
  }

  async #abort(of: OpenTransaction): Promise<void> {
    const handle = this.#handle as TransactionHandle
    if (of.ending === "open") await this.#sender.stop()
    await this.#offsets.settled()
    await this.#end(() => this.#live.abort(handle), "aborting the transaction")
    this.#forget("aborted")
  }

  async #complete(token: string): Promise<"committed" | "aborted"> {
    const handle = this.#handle
    // A transaction that was prepared here has its handle; one of an earlier incarnation is known by its token alone.
    const finish = async (): Promise<"committed" | "aborted"> => {
      if (handle === undefined) return await this.#live.complete(token)
      if (token === this.#token) await this.#live.commit(handle)
      else await this.#live.abort(handle)
      return token === this.#token ? "committed" : "aborted"
    }
    const end = await this.#end(finish, "completing the prepared transaction").catch((error: MillraceError) => {
      // Somebody else has ended it: what there is to do is another incarnation's to find out.
      if (error.kind === "transaction-state" && !error.retryable) this.#machine.outcome({ kind: "doubtful" })
      throw error
    })
    if (end === "committed") this.#committed()
    else this.#forget("aborted")
    return end
  }

  /** The end of a transaction, which leads to Ready. */
  async #end<T>(request: () => Promise<T>, what: string): Promise<T> {
    try {
      const answer = await this.#ask({ what, request, repeatable: true })
      this.#machine.outcome({ kind: "ended" })
      return answer
    } catch (thrown) {
      throw this.#refused(thrown)
    }
  }

  #committed(): void {
    const offsets = this.#offsets.take()
    this.#forget("committed")
    for (const one of offsets) one.committed()
  }

  /** There is no transaction any more, as far as this producer is concerned. */
  #forget(ending: OpenTransaction["ending"]): void {
    if (this.#open !== undefined) this.#open.ending = ending
    this.#open = undefined
    this.#handle = undefined
    this.#token = undefined
    this.#offsets.take()
  }

  /** Everything that was accepted is in the transaction. @throws TransactionAbortedError for what is not, TimeoutError; then it is open */
  async #drain(): Promise<void> {
    try {
      if (this.#machine.held === undefined) await Promise.all([this.#sender.flush(), this.#offsets.settled()])
    } catch (error) {
      this.#machine.outcome({ kind: "refused" })
      throw error
    }
    // The sender may have found out that this incarnation is over.
    this.#machine.assertLiving()
    const { held } = this.#machine
    if (held === undefined) return
    this.#machine.outcome({ kind: "refused" })
    throw mustAbort(this.what, held)
  }

  #hold(error: MillraceError): void {
    const consequence = consequenceOf(error)
    if (consequence === "fenced" || (consequence === "fatal" && error.kind === "closed")) this.#over(consequence, error)
    else this.#machine.hold(error)
  }

  /** What a failure of the call that is under way makes of the state. @returns the error for the caller */
  #refused(thrown: unknown): MillraceError {
    const error = millraceError(thrown)
    const open = this.#open
    const consequence = consequenceOf(error)
    if (consequence === "fenced" || consequence === "fatal") this.#over(consequence, error)
    else if (consequence === "doubtful") {
      if (open !== undefined) open.ending = "unknown"
      this.#machine.outcome({ kind: "doubtful" })
    } else {
      this.#machine.outcome({ kind: "refused" })
      if (consequence === "abortable" && open?.ending === "open") this.#machine.hold(error)
    }
    return error
  }

  #over(kind: "fenced" | "fatal", error: MillraceError): void {
    if (this.#open !== undefined) this.#open.ending = error.outcome === "unknown" ? "unknown" : "aborted"
    this.#machine.outcome({ kind, error })
  }

  /** @throws TransactionStateError for a guard whose transaction is over */
  #own(of: OpenTransaction, call: string): void {
    if (this.#open !== of) throw isOver(this.what, call, of.ending)
  }

  /** @throws ClosedError once this is closed */
  get #live(): TransactionSession {
    if (this.#session === undefined) throw new ClosedError(`${this.what} is closed`)
    return this.#session
  }

  #ask<T>(question: Question<T>): Promise<T> {
    return ask(this.#client.clock, this.#attempts, { ...question, what: `${this.what}: ${question.what}` })
  }
}
