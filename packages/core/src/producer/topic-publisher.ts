import {
  type Compression,
  type Manifest,
  MillraceError,
  NotFoundError,
  type TopicDescription,
  type TopicName,
} from "@millrace/contract"
import { type AttemptSettings, attempt } from "../client/attempts.ts"
import type { ClientContext } from "../client/context.ts"
import { type Creation, ensureTopic } from "../client/ensure-topic.ts"
import { topicText } from "../client/names.ts"
import { BatchObserver } from "../observe/batch-observer.ts"
import { Accumulator } from "./accumulator.ts"
import type { BatchJournal } from "./batch-journal.ts"
import type { Call } from "./call.ts"
import type { Identities } from "./identity-source.ts"
import type { PendingBatch } from "./pending-batch.ts"
import type { Partitioner } from "./routing.ts"
import { millraceError } from "./sender.ts"
import type { SenderSettings } from "./sender-command.ts"
import type { TransactionScope } from "./transaction-scope.ts"
import { trustedMs } from "./trusted-window.ts"

export interface TopicPublisherContext {
  readonly client: ClientContext
  readonly settings: SenderSettings
  readonly setup: AttemptSettings
  readonly batchRecords: number
  readonly batchBytes: number
  readonly compression: Compression | undefined
  readonly confirm: "offsets" | "stored"
  readonly partitioner: Partitioner | undefined
  readonly identities: Identities | undefined
  readonly transaction?: TransactionScope | undefined
  /** What may be created at the first use; absent: nothing. */
  readonly creation: Creation | undefined
  /** Gives preparations up. */
  readonly signal: AbortSignal
  readonly onResend: () => void
  readonly journal?: BatchJournal | undefined
  readonly onDoubt?: ((records: number) => void) | undefined
}

/**
 * One topic of a publisher through its incarnations. Calls go straight into the accumulator of the present one; while there is none
 * (before the first use, and when the topic turned out to be another one) they wait in order. A topic that is gone is asked for again
 * once for each batch that was on its way; it is not created a second time.
 */
export class TopicPublisher {
  readonly #name: TopicName
  readonly #context: TopicPublisherContext
  #accumulator: Accumulator | undefined
  /** The incarnation that is gone and has not been replaced. */
  #leaving: Accumulator | undefined
  #preparing: Promise<void> | undefined
  #creation: Creation | undefined
  #waiting: Call[] = []
  /** Why nothing is sent any more. */
  #ended: MillraceError | undefined

  constructor(name: TopicName, context: TopicPublisherContext) {
    this.#name = name
    this.#context = context
    this.#creation = context.creation
  }

  /** Settles when records can be taken. @throws NotFoundError and whatever else keeps the topic from being described */
  ready(): Promise<void> {
    return this.#accumulator === undefined ? this.#prepare() : Promise.resolve()
  }

  submit(call: Call): void {
    const accumulator = this.acceptor(call.highestPartition)
    if (accumulator !== undefined) {
      call.admit(accumulator)
      return
    }
    this.#waiting.push(call)
    this.#prepareQuietly()
  }

  /** Where a record that goes to this partition (−1: to any) can be put at once; `undefined` when its call must be submitted. */
  acceptor(partition: number): Accumulator | undefined {
    const accumulator = this.#accumulator
    return accumulator !== undefined && this.#waiting.length === 0 && partition < accumulator.partitions
      ? accumulator
      : undefined
  }

  /** What lingers for more records need not any more. */
  release(): void {
    this.#accumulator?.release()
  }

  /** Fails everything that has not settled. */
  abort(error: MillraceError): void {
    this.#ended = error
    for (const call of this.#takeWaiting()) call.refuse(error)
    this.#accumulator?.abort(error)
    this.#leaving?.abort(error)
  }

  /** For callers that wait in the queue: the failure reaches each of them through its own promise. */
  #prepareQuietly(): void {
    this.#prepare().catch(() => {})
  }

  /** One preparation at a time. Its end lets the waiting calls through, or refuses them with its failure. */
  #prepare(): Promise<void> {
    this.#preparing ??= this.#bring().then(
      () => this.#prepared(undefined),
      (thrown: unknown) => {
        const error = millraceError(thrown)
        this.#prepared(error)
        throw error
      },
    )
    return this.#preparing
  }

  #prepared(error: MillraceError | undefined): void {
    if (this.#accumulator !== undefined || error !== undefined) this.#admitWaiting(error)
    this.#preparing = undefined
    const isReplaced = this.#leaving !== undefined && this.#ended === undefined
    // Those who came into the room of refused calls have not been tried.
    if (isReplaced || this.#waiting.length > 0) this.#prepareQuietly()
  }

  #bring(): Promise<void> {
    if (this.#leaving !== undefined) return this.#replace(this.#leaving)
    return this.#accumulator === undefined ? this.#open() : this.#refresh(this.#accumulator)
  }

  async #open(): Promise<void> {
    let isAgain = false
    const description = await this.#attempt("preparing", () => {
      // An answer that did not come must not be waited for again.
      if (isAgain) this.#context.client.topics.forget(this.#name)
      isAgain = true
      return this.#describeOrCreate()
    })
    this.#creation = undefined
    this.#accumulator = this.#newAccumulator(description)
  }

  async #describeOrCreate(): Promise<TopicDescription> {
    const { client } = this.#context
    try {
      return await client.topics.describe(this.#name)
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error
      return await ensureTopic(client, this.#name, this.#creation ?? { stream: false, topic: undefined })
    }
  }

  /** A call names a partition that the description does not have: the topic may have got more since. */
  async #refresh(accumulator: Accumulator): Promise<void> {
    const description = await this.#describeAgain()
    if (description.lineage === accumulator.description.lineage) accumulator.refresh(description)
    else this.#gone(accumulator)
  }

  /** The topic is gone, or another one. */
  #gone(accumulator: Accumulator): void {
    if (this.#accumulator !== accumulator || this.#ended !== undefined) return
    this.#accumulator = undefined
    this.#leaving = accumulator
    this.#prepareQuietly()
  }

  /** Lets the old incarnation settle what is in flight, then takes the rest to the new one ahead of all that waits. */
  async #replace(old: Accumulator): Promise<void> {
    let error: MillraceError | undefined
    let next: Accumulator
    try {
      error = await old.retire()
      if (this.#ended !== undefined) throw this.#ended
      this.#context.identities?.spend()
      next = this.#newAccumulator(await this.#describeAgain())
    } catch (thrown) {
      for (const batch of old.takeLeft()) batch.fail(millraceError(thrown))
      throw thrown
    } finally {
      this.#leaving = undefined
    }
    for (const batch of old.takeLeft()) this.#move(batch, { old, next, error })
    // Not before: a part that fails makes room for a send, which must not go ahead of the parts behind it.
    this.#accumulator = next
  }

  #move(
    batch: PendingBatch,
    to: { readonly old: Accumulator; readonly next: Accumulator; readonly error: MillraceError | undefined },
  ): void {
    // What a transaction has staged for the old topic cannot be taken along: the transaction fails as a whole.
    if (batch.isMoved || batch.gate === "dropped" || this.#context.transaction !== undefined) {
      batch.fail(to.error ?? this.#replacedTwice())
      return
    }
    if (batch.isUnknown && to.old.description.lineage === to.next.description.lineage && !this.#mayGoAgain(batch)) {
      batch.fail(this.#goneForAMoment(to.error))
      return
    }
    const isWhole = to.next.takeMoved(batch, to.old.partitions)
    batch.chunk?.settled(!isWhole)
  }

  #admitWaiting(error: MillraceError | undefined): void {
    const accumulator = this.#accumulator
    if (accumulator === undefined) {
      for (const call of this.#takeWaiting()) call.refuse(error as MillraceError)
      return
    }
    // A send that comes meanwhile, into the room of one that was refused, sees that others wait, and is the last of them.
    for (const call of this.#waiting) {
      if (error !== undefined && call.highestPartition >= accumulator.partitions) call.refuse(error)
      else call.admit(accumulator)
    }
    this.#waiting = []
  }

  #takeWaiting(): Call[] {
    const waiting = this.#waiting
    this.#waiting = []
    return waiting
  }

  #describeAgain(): Promise<TopicDescription> {
    const { topics } = this.#context.client
    return this.#attempt("describing", () => {
      topics.forget(this.#name)
      return topics.describe(this.#name)
    })
  }

  #attempt<T>(verb: string, request: () => Promise<T>): Promise<T> {
    const { client, setup, signal } = this.#context
    return attempt(client.clock, setup, { what: `${verb} topic "${topicText(this.#name)}"`, request, signal })
  }

  #newAccumulator(description: TopicDescription): Accumulator {
    const { client, settings, partitioner, identities, onResend } = this.#context
    const accumulator: Accumulator = new Accumulator({
      description,
      log: client.session.log,
      limits: this.#manifest.limits,
      clock: client.clock,
      random: client.random,
      settings: { ...settings, windowMs: this.#windowMs(description) },
      confirm: this.#context.confirm,
      batchRecords: this.#context.batchRecords,
      batchBytes: this.#context.batchBytes,
      compression: this.#context.compression,
      partitioner,
      identities,
      transaction: this.#context.transaction,
      // Whoever waits for a send has a span of its own; what is sent in the background has one a batch.
      observer: new BatchObserver(this.#name, client.clock, {
        to: client.telemetry,
        batches: settings.release === "due",
      }),
      onResend,
      journal: this.#context.journal,
      onDoubt: this.#context.onDoubt,
      onGone: () => this.#gone(accumulator),
    })
    return accumulator
  }

  /** How long a resend is recognised: no longer than the topic remembers ids, where these are what it is recognised by. */
  #windowMs({ deduplicationWindowMs }: TopicDescription): number | undefined {
    const { dedup, windowMs } = this.#manifest.append
    const { onExpired, sequenced } = this.#context.settings
    if (onExpired !== undefined) return trustedMs(this.#manifest, { sequenced, deduplicationWindowMs })
    if (dedup !== "idWindow") return windowMs
    // A topic that remembers none was made so: its resends may double, as on a backend that recognises none.
    return deduplicationWindowMs === 0 ? undefined : Math.min(windowMs ?? deduplicationWindowMs, deduplicationWindowMs)
  }

  get #manifest(): Manifest {
    return this.#context.client.session.manifest
  }

  /**
   * Whether a batch that may be stored can go out anew, as another one, to the topic that it was meant for: its records are recognised
   * by their ids, or may be stored twice.
   */
  #mayGoAgain(batch: PendingBatch): boolean {
    const { settings, onDoubt } = this.#context
    if (this.#manifest.append.dedup === "idWindow") return settings.onUnknown === "resend"
    if (settings.onExpired === "resend") {
      onDoubt?.(batch.count)
      return true
    }
    return settings.onUnknown === "resend" && !settings.sequenced
  }

  #goneForAMoment(cause: MillraceError | undefined): MillraceError {
    const topic = topicText(this.#name)
    const message = `topic "${topic}" was not found for a moment: an earlier attempt may have stored the records, and a resend could not be recognised`
    return new MillraceError("not-found", message, { outcome: "unknown", cause })
  }

  #replacedTwice(): NotFoundError {
    return new NotFoundError(`topic "${topicText(this.#name)}" was replaced twice while records were on their way`)
  }
}
