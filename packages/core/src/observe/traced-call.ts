/** The span of a call that waits for its confirmation. */
import { type Manifest, MillraceError, type TopicName } from "@millrace/contract"
import type { SendResult } from "../producer/confirmation.ts"
import type { DeliveryCall } from "../producer/delivery-call.ts"
import { PublishFailedError } from "../producer/publish-failed.ts"
import type { SendRequest } from "../producer/send-call.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import type { Telemetry } from "./telemetry.ts"
import { allCarrying, linksOf } from "./traced-records.ts"

/** What is called. */
export interface CallToTrace {
  readonly name: TopicName
  readonly request: SendRequest
  readonly limits: Manifest["limits"]
}

/**
 * Sends within a span, whose context the records carry. A resend changes nothing of its records: they carry what they carried.
 * @param send Settles when the call has.
 */
export async function traceCall(
  telemetry: Telemetry,
  { name, request, limits }: CallToTrace,
  send: (request: SendRequest) => Promise<SendResult>,
): Promise<SendResult> {
  const { records, route, resend } = request
  const partition = route.kind === "partition" ? { partition: route.partition } : {}
  const span = telemetry.call(name, { records: records.length, links: linksOf(records), ...partition })
  const { context } = span
  const carrying =
    context === undefined || resend ? request : { ...request, records: allCarrying(records, context, limits) }
  try {
    const result = await send(carrying)
    span.end({ attempted: true, ...onlyPartition(result) })
    return result
  } catch (error) {
    span.end({ attempted: error instanceof PublishFailedError, error: failureOf(error) })
    throw error
  }
}

/** What a call failed with, as it is counted: by the failure below, since that a publish failed goes without saying. */
function failureOf(thrown: unknown): MillraceError {
  const cause = thrown instanceof PublishFailedError ? thrown.publishCause() : thrown
  return cause instanceof MillraceError ? cause : new MillraceError("protocol", String(cause), { cause })
}

function onlyPartition({ confirmations }: SendResult): { readonly partition?: number } {
  const [first] = confirmations
  if (first === undefined || confirmations.some(({ partition }) => partition !== first.partition)) return {}
  return { partition: first.partition }
}

/** Begins the span of one record that is delivered by itself, and answers the record that carries its context. */
export function traceDelivery(
  telemetry: Telemetry,
  {
    call,
    record,
    limits,
  }: { readonly call: DeliveryCall; readonly record: SendableRecord; readonly limits: Manifest["limits"] },
): SendableRecord {
  const { highestPartition } = call
  const span = telemetry.call(call.name, {
    records: 1,
    links: linksOf([record]),
    ...(highestPartition === -1 ? {} : { partition: highestPartition }),
  })
  call.span = span
  return span.context === undefined ? record : (allCarrying([record], span.context, limits)[0] as SendableRecord)
}

/** Ends the span of a delivery. */
export function endDelivery(call: DeliveryCall, failure: PublishFailedError | undefined): void {
  const { span, partition } = call
  if (failure !== undefined) span?.end({ attempted: true, error: failureOf(failure) })
  else span?.end({ attempted: true, ...(partition === undefined ? {} : { partition }) })
}
