import type { MillraceError, TopicName } from "@millrace/contract"
import { diagnostics, type SpoolEvent } from "../observe/diagnostics.ts"
import type { SpoolDepth } from "./spool.ts"

/** Whose tidings they are. */
export interface SpoolPlace {
  readonly name: TopicName
  readonly directory: string
  readonly depth: () => SpoolDepth
}

/** Tells those who listen on `millrace:producer.spool` what the spool does. */
export function tellSpool(place: SpoolPlace, what: SpoolEvent["what"], error?: MillraceError): void {
  const channel = diagnostics["producer.spool"]
  if (!channel.hasSubscribers) return
  const { stream, topic } = place.name
  const { records: waitingRecords, bytes: waitingBytes } = place.depth()
  const event = { stream, topic, directory: place.directory, what, waitingRecords, waitingBytes }
  channel.publish(error === undefined ? event : { ...event, error })
}

/** Tells those who listen on `millrace:producer.backpressure` that a send met a full buffer. */
export function tellBackpressure(
  name: TopicName,
  outcome: "waits" | "refused",
  buffer: { readonly bufferedBytes: number; readonly maxBufferBytes: number },
): void {
  const channel = diagnostics["producer.backpressure"]
  if (channel.hasSubscribers) channel.publish({ stream: name.stream, topic: name.topic, outcome, ...buffer })
}
