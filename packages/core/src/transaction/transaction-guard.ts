import { InvalidError, type Manifest, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { shown } from "../client/options.ts"
import { need } from "../client/topic-options.ts"
import type { Consumer } from "../consumer/consumer.ts"
import type { SendResult } from "../producer/confirmation.ts"
import { nameOf, preparedBatch, preparedSend, type SendBatchOptions, type TopicRef } from "../producer/producer.ts"
import type { Route } from "../producer/routing.ts"
import { isOffsetSource } from "../progress/transacted-offsets.ts"
import type { Checkpoint } from "../record/checkpoint.ts"
import type { Message } from "../record/message.ts"
import type { OutgoingRecord, SendableRecord } from "../record/outgoing-record.ts"
import type { TypedSendOptions } from "../typed/record-encoder.ts"
import { TypedTopic, typedParts } from "../typed/typed-topic.ts"
import type { Transaction, TransactionEnding } from "./transaction.ts"
import type { OpenTransaction, TransactionControl } from "./transaction-control.ts"
import { resultOf } from "./transaction-result.ts"

/** The caller's hand on one transaction. */
export class TransactionGuard implements Transaction {
  readonly #client: ClientContext
  readonly #control: TransactionControl
  readonly #open: OpenTransaction
  readonly #route: Route
  readonly #limits: Manifest["limits"]
  /** Of the last send: topics are compared by identity first. */
  #lastRef: TopicRef | undefined
  #lastName: TopicName | undefined
  #isSettled = false

  constructor(
    client: ClientContext,
    control: TransactionControl,
    of: { readonly open: OpenTransaction; readonly route: Route },
  ) {
    this.#client = client
    this.#control = control
    this.#open = of.open
    this.#route = of.route
    this.#limits = client.session.manifest.limits
  }

  get ending(): TransactionEnding {
    return this.#open.ending
  }

  /** Whether it was prepared, committed or aborted by a call of this guard, and not by something else. */
  get isSettled(): boolean {
    return this.#isSettled
  }

  send(topic: TopicRef, payload: unknown, options?: TypedSendOptions): Promise<void> {
    try {
      this.#control.assert(this.#open, "send")
      const to = { name: this.#nameOf(topic), route: this.#route }
      return this.#control.send(this.#open, this.#prepared(topic, payload, options), to)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  sendBatch(
    topic: TopicRef,
    records: readonly (Uint8Array | OutgoingRecord)[],
    options?: SendBatchOptions,
  ): Promise<void> {
    try {
      this.#control.assert(this.#open, "send")
      const name = this.#nameOf(topic)
      const batch = preparedBatch(records, options, { route: this.#route, limits: this.#limits })
      return this.#control.sendAll(this.#open, batch.records, { name, route: batch.route })
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async sendOffsets(consumer: Consumer, what: readonly (Message | Checkpoint)[]): Promise<void> {
    this.#control.assert(this.#open, "sendOffsets")
    const owner = `${this.#control.what}: sendOffsets`
    const { manifest } = this.#client.session
    const { transactions } = manifest
    if (transactions.supported) need(manifest, transactions.offsets, { owner, what: "offsets in transactions" })
    if (!isOffsetSource(consumer)) throw new InvalidError(`${owner} takes a consumer, not ${shown(consumer)}`)
    if (!Array.isArray(what))
      throw new InvalidError(`${owner} takes an array of messages or checkpoints, not ${shown(what)}`)
    if (consumer.offsetSession !== this.#client.session) {
      throw new InvalidError(`${owner}: the consumer reads over another connection; it has to be of the same client`)
    }
    await this.#control.sendOffsets(this.#open, consumer.transact(what))
  }

  async prepare(): Promise<string> {
    const { manifest } = this.#client.session
    const { transactions } = manifest
    if (transactions.supported) {
      need(manifest, transactions.prepare, { owner: this.#control.what, what: "way to prepare a transaction" })
    }
    const token = await this.#control.prepare(this.#open)
    this.#isSettled = true
    return token
  }

  async commit(): Promise<SendResult> {
    const staged = await this.#control.commit(this.#open)
    this.#isSettled = true
    return resultOf(staged)
  }

  async abort(): Promise<void> {
    await this.#control.abort(this.#open)
    this.#isSettled = true
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#open.ending !== "open" || this.#control.state !== "InTransaction") {
      await this.#control.idle()
      if (this.#open.ending !== "open" || this.#control.state !== "InTransaction") return
    }
    try {
      await this.abort()
    } catch (error) {
      this.#control.dropped(this.#open)
      throw error
    }
  }

  #prepared(topic: TopicRef, what: unknown, options: TypedSendOptions | undefined): SendableRecord {
    const limits = this.#limits
    if (!(topic instanceof TypedTopic)) return preparedSend(what as Uint8Array | null, options, { limits })
    const { encoder } = typedParts(topic as TypedTopic<unknown>)
    const payload = encoder.payload(what)
    return preparedSend(payload, encoder.options(payload, options), { limits, own: encoder.own })
  }

  #nameOf(topic: TopicRef): TopicName {
    if (topic === this.#lastRef) return this.#lastName as TopicName
    const name = nameOf(topic, this.#client.session.manifest)
    this.#lastRef = topic
    this.#lastName = name
    return name
  }
}
