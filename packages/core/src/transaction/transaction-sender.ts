import {
  type Manifest,
  type MillraceError,
  TimeoutError,
  type TopicName,
  TransactionAbortedError,
  type TransactionHandle,
  UnsupportedError,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import type { RecordSealer } from "../encryption/encryptor.ts"
import { sealAll, sealerOf, sealOne } from "../encryption/sealing.ts"
import { allCarryingActive, carryingActive } from "../observe/traced-records.ts"
import { BufferBudget } from "../producer/buffer-budget.ts"
import { type Destination, Lane } from "../producer/lane.ts"
import { Publisher } from "../producer/publisher.ts"
import type { StatisticsCounter } from "../producer/statistics.ts"
import type { TransactionScope } from "../producer/transaction-scope.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { bufferBytesOf } from "../record/record-size.ts"
import { TransactionIdentity } from "./transaction-identity.ts"
import type { TransactionalSettings } from "./transactional-options.ts"

/** Every accepted send is answered with this. */
export const accepted: Promise<void> = Promise.resolve()

/** The records of one transaction after the other, on their way into it: a lane and a publisher whose batches carry the transaction. */
export class TransactionSender {
  readonly #client: ClientContext
  readonly #settings: TransactionalSettings
  readonly #statistics: StatisticsCounter
  readonly #limits: Manifest["limits"]
  readonly #sealer: RecordSealer | undefined
  readonly #failed: (error: MillraceError) => void
  readonly identity: TransactionIdentity
  readonly #scope: TransactionScope
  readonly #budget: BufferBudget
  #publisher: Publisher
  #lane: Lane
  #handle: TransactionHandle | undefined
  /** Why nothing more of the transaction goes out. */
  #stopped: MillraceError | undefined
  /** Where the records of a transaction go that may have one partition only. */
  #only: (TopicName & { readonly partition: number }) | undefined

  /** @param failed Told of what was accepted and not staged: the transaction cannot be committed. */
  constructor(
    client: ClientContext,
    settings: TransactionalSettings,
    own: { readonly statistics: StatisticsCounter; readonly failed: (error: MillraceError) => void },
  ) {
    this.#client = client
    this.#settings = settings
    this.#statistics = own.statistics
    this.#failed = own.failed
    this.#limits = client.session.manifest.limits
    this.#sealer = sealerOf(client, settings.encryptor)
    this.identity = new TransactionIdentity(settings.what)
    const self = this
    this.#scope = {
      identities: this.identity,
      get handle() {
        return self.#open()
      },
      enter: (name, partition) => this.#enter(name, partition),
    }
    this.#budget = this.#newBudget()
    this.#publisher = this.#newPublisher()
    this.#lane = this.#newLane()
  }

  /** What errors at a shutdown name: publishers with what has not settled. */
  get publishers(): readonly Publisher[] {
    return [this.#publisher]
  }

  /** The records that come are those of this transaction. */
  begin(handle: TransactionHandle): void {
    this.#handle = handle
    this.#stopped = undefined
    this.#only = undefined
  }

  /** Settles when the record is accepted. @throws InvalidError, RecordTooLargeError, UnsupportedError; BufferFullError for what never fits */
  send(record: SendableRecord, to: Destination): Promise<void> {
    return this.sendAsIs(
      sealOne(this.#sealer, to.name, carryingActive(this.#client.telemetry, record, this.#limits)),
      to,
    )
  }

  /** The same for a record that is to be stored as it is. */
  sendAsIs(sealed: SendableRecord, to: Destination): Promise<void> {
    const bytes = bufferBytesOf(sealed)
    if (!this.#budget.tryTake(bytes)) return this.#budget.take(bytes, () => this.#lane.sendOne(sealed, to, bytes))
    try {
      this.#lane.sendOne(sealed, to, bytes)
    } catch (error) {
      this.#budget.release(bytes)
      throw error
    }
    return accepted
  }

  /** The same for several. What of them cannot be put into a batch fails the transaction. */
  sendAll(records: readonly SendableRecord[], to: Destination): Promise<void> {
    if (records.length === 0) return accepted
    const carrying = allCarryingActive(this.#client.telemetry, records, this.#limits)
    const sealed = sealAll(this.#sealer, to.name, carrying)
    let bytes = 0
    for (const record of sealed) bytes += bufferBytesOf(record)
    const enter = (): void => this.#lane.send(sealed, to, bytes)
    if (!this.#budget.tryTake(bytes)) return this.#budget.take(bytes, enter)
    enter()
    return accepted
  }

  /**
   * Sends what lingers, and settles when everything that was accepted is staged, or has failed, which `failed` was told.
   * @throws TimeoutError after `flushTimeoutMs`: what is on its way stays so
   */
  async flush(): Promise<void> {
    const { flushTimeoutMs, what } = this.#settings
    const late = Promise.withResolvers<never>()
    const timer = this.#client.clock.setTimer(flushTimeoutMs, () => {
      const message = `${what}: records of the transaction were not accepted within ${flushTimeoutMs} ms (flushTimeoutMs); it is still open`
      late.reject(new TimeoutError(message, { outcome: "rejected" }))
    })
    try {
      await Promise.race([this.#flushed(), late.promise])
    } finally {
      timer.cancel()
    }
  }

  /**
   * Drops what has not gone out, and waits for what is under way; past `flushTimeoutMs` it waits no more. The transaction is to be
   * aborted behind it.
   */
  async stop(): Promise<void> {
    const { what } = this.#settings
    this.#stopped = new TransactionAbortedError(`${what}: the transaction is being aborted`)
    this.#budget.refuse(this.#stopped)
    try {
      await this.flush()
    } catch {
      this.giveUp(new TransactionAbortedError(`${what}: the transaction was aborted`, { outcome: "unknown" }))
    }
  }

  /** Fails everything that has not settled, at once. What is sent later begins afresh, under another identity. */
  giveUp(error: MillraceError): void {
    this.identity.abandon()
    this.#budget.refuse(error)
    this.#lane.flush()
    this.#publisher.abort(error)
    this.#publisher.end()
    this.#publisher = this.#newPublisher()
    this.#lane = this.#newLane()
  }

  /** Nothing is sent any more: what still lingers, of a transaction that nobody can commit now, fails. */
  end(): void {
    this.#stopped ??= new TransactionAbortedError(`${this.#settings.what} was shut down`)
    this.#budget.refuse(this.#stopped)
    this.#lane.flush()
    this.#publisher.end()
  }

  async #flushed(): Promise<void> {
    await this.#budget.entered()
    this.#lane.flush()
    await this.#publisher.flush()
  }

  #open(): TransactionHandle {
    if (this.#stopped !== undefined) throw this.#stopped
    return this.#handle as TransactionHandle
  }

  #enter(name: TopicName, partition: number): void {
    const { transactions, backend } = this.#client.session.manifest
    if (!transactions.supported || transactions.partitions === "any") return
    const only = this.#only
    this.#only ??= { ...name, partition }
    if (only === undefined) return
    if (only.stream === name.stream && only.topic === name.topic && only.partition === partition) return
    throw new UnsupportedError(
      `${this.#settings.what}: ${backend} has transactions of one partition: this one has records of partition ${only.partition} of topic "${topicText(only)}", and cannot take one for partition ${partition} of topic "${topicText(name)}". Give each record the same partition, or end the transaction first`,
    )
  }

  #newPublisher(): Publisher {
    const settings = { ...this.#settings.publisher, transaction: this.#scope }
    return new Publisher(this.#client, settings, this.#statistics)
  }

  #newLane(): Lane {
    const { batchLength, batchBytes, lingerMs } = this.#settings
    return new Lane({
      publisher: this.#publisher,
      clock: this.#client.clock,
      statistics: this.#statistics,
      batchLength,
      batchBytes,
      lingerMs,
      onSettled: (bytes, failure) => {
        this.#budget.release(bytes)
        if (failure !== undefined) this.#failed(failure.cause as MillraceError)
      },
    })
  }

  #newBudget(): BufferBudget {
    const { what, maxBufferBytes } = this.#settings
    return new BufferBudget(this.#client.clock, {
      owner: `the buffer of the ${what}`,
      option: "maxBufferBytes",
      limitBytes: maxBufferBytes,
      failureMode: "block",
      blockTimeoutMs: 0,
      onShort: () => this.#lane.flushSoon(),
    })
  }
}
