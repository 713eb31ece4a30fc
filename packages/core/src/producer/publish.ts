import type { TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { type OutgoingRecord, prepareRecords, type SendableRecord } from "../record/outgoing-record.ts"
import type { SendResult } from "./confirmation.ts"
import { preparedSend, type SendOptions } from "./producer.ts"
import { connectionSettings, Publisher } from "./publisher.ts"
import { balanced, type Route } from "./routing.ts"

/** One a client, made at the first use and shut down with the client. */
const publishers = new WeakMap<ClientContext, Publisher>()

/**
 * Publishes one payload with the connection's publish timeout and retries, and waits for its confirmation. Nothing is created.
 * @throws InvalidError, RecordTooLargeError before anything is sent; NotFoundError, PublishFailedError, ClosedError
 */
export async function publishOne(
  client: ClientContext,
  name: TopicName,
  payload: Uint8Array | null,
  options?: SendOptions,
): Promise<SendResult> {
  const record = preparedSend(payload, options, client.session.manifest.limits)
  return await publishPrepared(client, name, { records: [record], route: balanced })
}

/** Publishes records that passed their checks. */
export async function publishPrepared(
  client: ClientContext,
  name: TopicName,
  request: { readonly records: readonly SendableRecord[]; readonly route: Route },
): Promise<SendResult> {
  const publisher = publisherOf(client)
  publisher.assertOpen()
  return await publisher.submit(name, { ...request, resend: false })
}

/** Sends unconfirmed records again with the ids and partitions of their attempts: see `Topic.batch`. */
export async function resendBatch(
  client: ClientContext,
  name: TopicName,
  records: readonly OutgoingRecord[],
): Promise<SendResult> {
  const prepared = prepareRecords(records, client.session.manifest.limits, { resend: true })
  const publisher = publisherOf(client)
  publisher.assertOpen()
  return await publisher.submit(name, { records: prepared, route: balanced, resend: true })
}

function publisherOf(client: ClientContext): Publisher {
  let publisher = publishers.get(client)
  if (publisher === undefined) {
    publisher = new Publisher(client, connectionSettings(client))
    publishers.set(client, publisher)
  }
  return publisher
}
