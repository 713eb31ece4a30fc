import type { Headers, Manifest } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import type { RecordSealer } from "../encryption/encryptor.ts"
import { sealAll, sealerOf, sealOne } from "../encryption/sealing.ts"
import { type OutgoingRecord, prepareRecord, type SendableRecord } from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import type { Delivery, DeliveryHandle } from "./delivery-call.ts"
import type { Destination } from "./lane.ts"
import { PooledBatch, type PooledContent, sendPooled } from "./pooled-batch.ts"
import {
  nameOf,
  type Producer,
  preparedBatch,
  preparedSend,
  type SendBatchOptions,
  type SendOptions,
  type TopicRef,
} from "./producer.ts"
import type { ProducerSettings } from "./producer-options.ts"
import type { ShutdownOptions } from "./sending-end.ts"
import type { ProducerStatistics } from "./statistics.ts"

/**
 * What every producer does before a record goes its way: it is checked, and sealed where there is an encryptor. Where it goes then, and
 * what settles the send, is what direct, background and spooled producers differ in.
 */
export abstract class CheckedProducer implements Producer {
  protected readonly client: ClientContext
  /** Where records go that say nothing else. */
  protected readonly to: Destination
  protected readonly limits: Manifest["limits"]
  readonly #sealer: RecordSealer | undefined
  readonly #check: { readonly limits: Manifest["limits"]; readonly own: Headers | undefined }

  protected constructor(client: ClientContext, to: Destination, settings: ProducerSettings) {
    this.client = client
    this.to = to
    this.limits = client.session.manifest.limits
    this.#sealer = sealerOf(client, settings.encryptor)
    this.#check = { limits: this.limits, own: settings.ownHeaders }
  }

  abstract get statistics(): ProducerStatistics
  abstract init(): Promise<void>
  abstract flush(): Promise<void>
  abstract shutdown(options?: ShutdownOptions): Promise<void>

  /** @throws ClosedError, and whatever else keeps it from taking records now */
  protected abstract assertTaking(): void
  protected abstract take(record: SendableRecord, to: Destination): Promise<SendResult>
  protected abstract takeAll(records: readonly SendableRecord[], to: Destination): Promise<SendResult>
  /** Settles with the delivery. */
  protected abstract confirm(record: SendableRecord): Promise<Delivery>
  /** Settles when the record is accepted. Its bytes are the caller's again from then on. */
  protected abstract accept(record: SendableRecord): Promise<DeliveryHandle>

  send(what: Uint8Array | null | PooledBatch, options?: SendOptions): Promise<SendResult> {
    return what instanceof PooledBatch ? this.sendBatch(what, options) : this.#send(this.to, what, options)
  }

  sendTo(topic: TopicRef, payload: Uint8Array | null, options?: SendOptions): Promise<SendResult> {
    try {
      const name = nameOf(topic, this.client.session.manifest)
      return this.#send({ name, route: this.to.route }, payload, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  sendBatch(
    batch: readonly (Uint8Array | OutgoingRecord)[] | PooledBatch,
    options?: SendBatchOptions,
  ): Promise<SendResult> {
    if (batch instanceof PooledBatch) return sendPooled(batch, (content) => this.#sendBatch(content, options))
    return this.#sendBatch(batch, options)
  }

  sendAndConfirm(payload: Uint8Array | null, options?: SendOptions): Promise<Delivery> {
    try {
      this.assertTaking()
      return this.confirm(sealOne(this.#sealer, this.to.name, this.#prepared(payload, options)))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async enqueue(record: OutgoingRecord): Promise<DeliveryHandle> {
    this.assertTaking()
    const prepared = prepareRecord(record, this.limits, { resend: false, own: this.#check.own })
    return await this.accept(sealOne(this.#sealer, this.to.name, prepared))
  }

  waitUntilAllSends(): Promise<void> {
    return this.flush()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown()
  }

  #sendBatch(
    batch: readonly (Uint8Array | OutgoingRecord)[] | PooledContent,
    options: SendBatchOptions | undefined,
  ): Promise<SendResult> {
    try {
      this.assertTaking()
      const { name } = this.to
      const own = { route: this.to.route, limits: this.limits, headers: this.#check.own }
      const { records, route } = preparedBatch(batch, options, own)
      return this.takeAll(sealAll(this.#sealer, name, records), { name, route })
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #send(to: Destination, payload: Uint8Array | null, options: SendOptions | undefined): Promise<SendResult> {
    try {
      this.assertTaking()
      return this.take(sealOne(this.#sealer, to.name, this.#prepared(payload, options)), to)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #prepared(payload: Uint8Array | null, options: SendOptions | undefined): SendableRecord {
    return preparedSend(payload, options, this.#check)
  }
}
