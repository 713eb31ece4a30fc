import type { Headers, TopicName } from "@millrace/contract"
import type { ClientContext, Owned } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import { OptionReader } from "../client/options.ts"
import type { Encryptor, RecordSealer } from "../encryption/encryptor.ts"
import { checkEncryptorChoice, sealAgain, sealAll, sealerOf, sealOne } from "../encryption/sealing.ts"
import { type OutgoingRecord, prepareRecords, type SendableRecord } from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import { preparedSend, type SendOptions } from "./producer.ts"
import { connectionSettings, Publisher } from "./publisher.ts"
import { balanced, type Route } from "./routing.ts"
import type { SendRequest } from "./send-call.ts"
import { SendingEnd, type ShutdownOptions } from "./sending-end.ts"
import { StatisticsCounter } from "./statistics.ts"

/** One a client, made at the first use and shut down with the client. */
const sendings = new WeakMap<ClientContext, ConnectionSending>()

/**
 * Publishes one payload with the connection's publish timeout and retries, and waits for its confirmation. Nothing is created.
 * @param sent.own See `PrepareOptions`.
 * @throws InvalidError, RecordTooLargeError before anything is sent; NotFoundError, PublishFailedError, ClosedError
 */
export async function publishOne(
  client: ClientContext,
  name: TopicName,
  sent: { readonly payload: Uint8Array | null; readonly options?: SendOptions | undefined; readonly own?: Headers },
): Promise<SendResult> {
  const { payload, options, own } = sent
  const record = preparedSend(payload, options, { limits: client.session.manifest.limits, own })
  return await publishRecord(client, name, record)
}

/** Publishes one record that passed its checks. */
export async function publishRecord(
  client: ClientContext,
  name: TopicName,
  record: SendableRecord,
): Promise<SendResult> {
  const sending = sendingOf(client)
  sending.assertOpen()
  const records = [sealOne(sending.sealer, name, record)]
  return await sending.submit(name, { records, route: balanced, resend: false })
}

/** Publishes the records of a batch, which passed their checks. */
export async function publishPrepared(
  client: ClientContext,
  name: TopicName,
  request: { readonly records: readonly SendableRecord[]; readonly route: Route },
): Promise<SendResult> {
  const sending = sendingOf(client)
  sending.assertOpen()
  const records = sealAll(sending.sealer, name, request.records)
  return await sending.submit(name, { route: request.route, records, resend: false })
}

/** Options of `topic.batch`. */
export interface ResendOptions {
  /** What records are encrypted with that are not encrypted yet; `false` sends them as they are. Default: the client's. */
  readonly encryptor?: Encryptor | false
}

/** Sends unconfirmed records again with the ids and partitions of their attempts: see `Topic.batch`. */
export async function resendBatch(
  client: ClientContext,
  name: TopicName,
  batch: { readonly records: readonly OutgoingRecord[]; readonly options: ResendOptions | undefined },
): Promise<SendResult> {
  const { records, options } = batch
  const sending = sendingOf(client)
  sending.assertOpen()
  const owner = `batch of topic "${topicText(name)}"`
  new OptionReader<ResendOptions>(owner, options, ["encryptor"])
  const own = checkEncryptorChoice(owner, options?.encryptor)
  const prepared = prepareRecords(records, client.session.manifest.limits, { resend: true })
  const sealed = sealAgain(own === undefined ? sending.sealer : sealerOf(client, own), name, prepared)
  return await sending.submit(name, { records: sealed, route: balanced, resend: true })
}

function sendingOf(client: ClientContext): ConnectionSending {
  let sending = sendings.get(client)
  if (sending === undefined) {
    sending = new ConnectionSending(client)
    sendings.set(client, sending)
  }
  return sending
}

/** The publisher behind `publish()`, `publishBatch()` and `topic.batch()`, with the connection's settings. */
class ConnectionSending implements Owned {
  /** The client's. */
  readonly sealer: RecordSealer | undefined
  readonly #publisher: Publisher
  readonly #end: SendingEnd

  constructor(client: ClientContext) {
    const settings = connectionSettings(client)
    const publisher = new Publisher(client, settings, new StatisticsCounter(client.clock))
    this.#publisher = publisher
    this.sealer = sealerOf(client, undefined)
    const { owner } = settings
    this.#end = new SendingEnd(client, { owner, publishers: [publisher], flush: () => publisher.flush() }, this)
  }

  /** @throws ClosedError after the client's close */
  assertOpen(): void {
    this.#end.assertOpen()
  }

  /** @throws ClosedError after the client's close */
  submit(name: TopicName, request: SendRequest): Promise<SendResult> {
    this.#end.assertOpen()
    return this.#publisher.submit(name, request)
  }

  shutdown(options?: ShutdownOptions): Promise<void> {
    return this.#end.begin(options)
  }
}
