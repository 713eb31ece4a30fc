import { InvalidError, type TimeoutError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { OptionReader, shown } from "../client/options.ts"
import { need } from "../client/topic-options.ts"
import { SendingEnd, type ShutdownOptions } from "../producer/sending-end.ts"
import { type ProducerStatistics, StatisticsCounter } from "../producer/statistics.ts"
import type { TransactionState } from "./transaction.machine.ts"
import type { InitOptions, Transaction, TransactionalIdentity } from "./transaction.ts"
import { TransactionControl } from "./transaction-control.ts"
import { TransactionGuard } from "./transaction-guard.ts"
import {
  checkTransactionalOptions,
  type TransactionalOptions,
  type TransactionalSettings,
} from "./transactional-options.ts"

/**
 * A producer whose records appear together or not at all, across topics and partitions, with a consumer's progress if need be (seed 004,
 * KIP-98). One transaction at a time. `init` comes first: it makes this the only living incarnation of its id.
 */
export class TransactionalProducer implements AsyncDisposable {
  readonly #client: ClientContext
  readonly #settings: TransactionalSettings
  readonly #control: TransactionControl
  readonly #statistics: StatisticsCounter
  readonly #end: SendingEnd

  /** Made by `client.transactionalProducer`. @throws InvalidError, UnsupportedError for the options; ClosedError */
  constructor(client: ClientContext, options: TransactionalOptions) {
    this.#client = client
    this.#settings = checkTransactionalOptions(options, client)
    this.#statistics = new StatisticsCounter(client.clock)
    const control = new TransactionControl(client, this.#settings, this.#statistics)
    this.#control = control
    const parts = {
      owner: this.#settings.what,
      get publishers() {
        return control.publishers
      },
      flush: () => control.close(),
      giveUp: (error: TimeoutError) => control.giveUp(error),
      waitsFor: () => (control.state === "CommittingOrAborting" ? "the end of a transaction had no answer" : undefined),
    }
    this.#end = new SendingEnd(client, parts, this)
  }

  /** Where it stands (table 5.2). */
  get state(): TransactionState {
    return this.#control.state
  }

  /** What its records and their transactions count up to. A record is confirmed when the transaction has it. */
  get statistics(): ProducerStatistics {
    return this.#statistics.snapshot()
  }

  /**
   * Begins a new incarnation of the id: older ones are fenced, in whatever process they are, and what they have not finished is aborted.
   * @param options `keepPrepared`: what was prepared is kept; the producer is then `Prepared`, and `complete` ends it.
   * @throws TransactionStateError while a transaction is open; FencedError, and what made the producer useless, once it is; else what keeps
   *   the backend from answering: the call can be made again
   */
  async init(options?: InitOptions): Promise<void> {
    this.#end.assertOpen()
    const read = new OptionReader<InitOptions>(`${this.#settings.what}: init`, options, ["keepPrepared"])
    const keepPrepared = read.flag("keepPrepared", false)
    const { manifest } = this.#client.session
    const { transactions } = manifest
    if (keepPrepared && transactions.supported) {
      need(manifest, transactions.prepare, { owner: this.#settings.what, what: "way to prepare a transaction" })
    }
    await this.#control.init(keepPrepared)
  }

  /**
   * Begins a transaction, to be ended by `commit` or `abort` of the answer, wherever that is kept. `await using` aborts it when its scope
   * is left before.
   * @throws TransactionStateError before `init`, and while another one is open; FencedError; what keeps the backend from answering
   */
  async begin(): Promise<Transaction> {
    return await this.#begin()
  }

  /**
   * Runs `work` in a transaction: commits when it resolves, aborts when it throws, and rejects with what it threw. One that `work` has
   * ended or prepared itself is left as it is; one that ended otherwise, as by a newer incarnation, makes it reject.
   * @throws as `begin` and `commit`; a transaction that cannot be committed is aborted
   */
  async within<R>(work: (transaction: Transaction) => R | Promise<R>): Promise<R> {
    if (typeof work !== "function") {
      throw new InvalidError(
        `${this.#settings.what}: within takes a function that gets the transaction, not ${shown(work)}`,
      )
    }
    const transaction = await this.#begin()
    let answer: R
    try {
      answer = await work(transaction)
      // Whatever else has ended it makes this fail.
      if (!transaction.isSettled) await transaction.commit()
    } catch (error) {
      // Why it failed counts for more than what ending it may fail with: that shows in the state.
      await Promise.resolve(transaction[Symbol.asyncDispose]()).catch(() => {})
      throw error
    }
    return answer
  }

  /**
   * Ends what was prepared: commits it when the token is the one that `prepare` gave for it, and aborts it for any other, the empty text too.
   * @throws TransactionStateError when nothing is prepared here: see `init({ keepPrepared: true })`; else as `commit`
   */
  async complete(token: string): Promise<"committed" | "aborted"> {
    this.#end.assertOpen()
    if (typeof token !== "string") {
      throw new InvalidError(`${this.#settings.what}: complete takes the token that prepare gave, not ${shown(token)}`)
    }
    return await this.#control.complete(token)
  }

  /** What fences: the id and epoch of this incarnation. Absent before `init`. */
  identity(): TransactionalIdentity | undefined {
    const identity = this.#control.session?.identity
    return identity === undefined ? undefined : { producerId: identity.producerId, epoch: identity.epoch }
  }

  /**
   * Takes nothing more: an open transaction is aborted, a prepared one stays. The second call awaits the first.
   * @throws TimeoutError when that takes longer than `timeoutMs` (default 30,000); what the abort failed with
   */
  async shutdown(options?: ShutdownOptions): Promise<void> {
    await this.#end.begin(options)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown()
  }

  async #begin(): Promise<TransactionGuard> {
    this.#end.assertOpen()
    const open = await this.#control.begin()
    return new TransactionGuard(this.#client, this.#control, { open, route: this.#settings.route })
  }
}
