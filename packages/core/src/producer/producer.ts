import type { HeadersInit } from "@millrace/contract"
import { InvalidError, type Manifest, type MessageId, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { checkName, topicText } from "../client/names.ts"
import { OptionReader, shown } from "../client/options.ts"
import {
  checkPayload,
  type OutgoingRecord,
  prepareRecord,
  prepareRecords,
  type SendableRecord,
} from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import { checkProducerOptions, type ProducerOptions } from "./producer-options.ts"
import { Publisher, type ShutdownOptions } from "./publisher.ts"
import { type Route, routeOf } from "./routing.ts"
import type { ProducerStatistics } from "./statistics.ts"

/** What one send may say about its record. `key` and `partition` override the producer's routing and exclude each other. */
export interface SendOptions {
  readonly key?: Uint8Array | string
  readonly partition?: number
  readonly headers?: HeadersInit
  readonly id?: MessageId
  readonly timestampMicros?: bigint
}

/** Routing of a batch, for all records that have no key or partition of their own. */
export interface SendBatchOptions {
  readonly key?: Uint8Array | string
  readonly partition?: number
}

/**
 * A long-lived direct producer: each send is confirmed by the backend before its promise resolves. Several sends may be under way;
 * for each partition they are stored in the order of the calls. Sends that are not awaited share requests. Bytes are read until the
 * send settles: do not change them before.
 */
export interface Producer extends AsyncDisposable {
  /** Prepares the topic, created where it is missing and may be. Sends do this by themselves. @throws NotFoundError … */
  init(): Promise<void>
  /**
   * Sends one record; `null` is a tombstone.
   * @throws InvalidError, RecordTooLargeError before anything is sent; NotFoundError when the topic is not there, and whatever else
   *   keeps it from being prepared, as it is; PublishFailedError once records were tried, when the retries are used up or the failure
   *   is lasting; ClosedError after shutdown
   */
  send(payload: Uint8Array | null, options?: SendOptions): Promise<SendResult>
  /**
   * Sends records in order, in requests of `batchLength`, each with its own retries; a failed request stops those behind it. No
   * records: no request.
   * @throws as `send`; a record that is refused is named by its index, and then nothing is sent
   */
  sendBatch(records: readonly (Uint8Array | OutgoingRecord)[], options?: SendBatchOptions): Promise<SendResult>
  /** `send` to another topic, with this producer's settings. */
  sendTo(topic: TopicRef, payload: Uint8Array | null, options?: SendOptions): Promise<SendResult>
  /** Settles when every send that was called before has settled, well or not. */
  flush(): Promise<void>
  /** The same as `flush`. */
  waitUntilAllSends(): Promise<void>
  /**
   * Takes no more sends and waits for those under way. A second call awaits the first.
   * @throws TimeoutError at the deadline; it names how many records are not confirmed, and their sends reject too
   */
  shutdown(options?: ShutdownOptions): Promise<void>
  readonly statistics: ProducerStatistics
}

/** A topic by its handle. */
export interface TopicRef {
  readonly stream: string
  readonly name: string
}

const sendKeys: readonly (keyof SendOptions)[] = ["key", "partition", "headers", "id", "timestampMicros"]
const batchKeys: readonly (keyof SendBatchOptions)[] = ["key", "partition"]

/** @throws InvalidError, UnsupportedError for the options */
export function openProducer(client: ClientContext, name: TopicName, options: ProducerOptions | undefined): Producer {
  const owner = `producer of topic "${topicText(name)}"`
  const { settings, route } = checkProducerOptions(owner, options, client)
  return new DirectProducer(client, { name, route, publisher: new Publisher(client, settings) })
}

/** One record of a `send`, checked. @throws InvalidError, RecordTooLargeError */
export function preparedSend(
  payload: Uint8Array | null,
  options: SendOptions | undefined,
  limits: Manifest["limits"],
): SendableRecord {
  if (options === undefined) {
    if (payload !== null) {
      checkPayload(payload, limits)
      return payload
    }
    return prepareRecord({ payload }, limits)
  }
  checkKeys("send", options, sendKeys)
  return prepareRecord({ ...options, payload }, limits)
}

class DirectProducer implements Producer {
  readonly #name: TopicName
  readonly #route: Route
  readonly #publisher: Publisher
  readonly #manifest: Manifest

  constructor(
    client: ClientContext,
    parts: { readonly name: TopicName; readonly route: Route; readonly publisher: Publisher },
  ) {
    this.#name = parts.name
    this.#route = parts.route
    this.#publisher = parts.publisher
    this.#manifest = client.session.manifest
  }

  get statistics(): ProducerStatistics {
    return this.#publisher.statistics
  }

  init(): Promise<void> {
    return this.#publisher.ready(this.#name)
  }

  send(payload: Uint8Array | null, options?: SendOptions): Promise<SendResult> {
    return this.#sendOne(this.#name, payload, options)
  }

  sendTo(topic: TopicRef, payload: Uint8Array | null, options?: SendOptions): Promise<SendResult> {
    try {
      return this.#sendOne(nameOf(topic, this.#manifest), payload, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  sendBatch(records: readonly (Uint8Array | OutgoingRecord)[], options?: SendBatchOptions): Promise<SendResult> {
    try {
      this.#publisher.assertOpen()
      let route = this.#route
      if (options !== undefined) {
        checkKeys("sendBatch", options, batchKeys)
        route = routeOf(options, route, this.#manifest.limits)
      }
      const prepared = prepareRecords(records, this.#manifest.limits)
      return this.#publisher.submit(this.#name, { records: prepared, route, resend: false })
    } catch (error) {
      return Promise.reject(error)
    }
  }

  flush(): Promise<void> {
    return this.#publisher.flush()
  }

  waitUntilAllSends(): Promise<void> {
    return this.#publisher.flush()
  }

  async shutdown(options?: ShutdownOptions): Promise<void> {
    await this.#publisher.shutdown(options)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#publisher.shutdown()
  }

  #sendOne(name: TopicName, payload: Uint8Array | null, options: SendOptions | undefined): Promise<SendResult> {
    try {
      this.#publisher.assertOpen()
      const records = [preparedSend(payload, options, this.#manifest.limits)]
      return this.#publisher.submit(name, { records, route: this.#route, resend: false })
    } catch (error) {
      return Promise.reject(error)
    }
  }
}

function checkKeys<T extends object>(what: string, options: T, known: readonly (keyof T & string)[]): void {
  new OptionReader<T>(what, options, known)
}

function nameOf(topic: TopicRef, manifest: Manifest): TopicName {
  if (typeof topic !== "object" || topic === null || typeof topic.stream !== "string") {
    throw new InvalidError(`sendTo takes a topic handle, as client.topic() gives it, not ${shown(topic)}`)
  }
  return { stream: topic.stream, topic: checkName("topic", topic.name, manifest.limits) }
}
