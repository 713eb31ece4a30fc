/** Status messages of a pull (ADR-13, ADR-37): what the server says instead of a message. */
import type { Msg } from "@nats-io/transport-node"

/**
 * - heartbeat: the pull is alive.
 * - ended: this pull delivers no more (it expired, nothing was there, or its batch or bytes are used up).
 * - tooLarge: the same, and the next message is above the pull's bytes.
 * - gone: the consumer is not there any more, or moved: a new one is needed.
 * - refused: the server does not take such a request.
 */
export type PullStatus = "heartbeat" | "ended" | "tooLarge" | "gone" | "refused"

export interface StatusReply {
  readonly status: PullStatus
  /** What the pull had left of messages and bytes; absent where the server does not say. */
  readonly unservedMessages: number | undefined
  readonly unservedBytes: number | undefined
  /** In the server's words. */
  readonly text: string
}

/** Reads a status message. Statuses that are not known end the pull: the reader asks again. */
export function statusOf(message: Msg): StatusReply {
  const { headers } = message
  const code = headers?.code ?? 0
  const text = `${code} ${headers?.description ?? ""}`.trim()
  return {
    status: classOf(code, text),
    unservedMessages: count(headers?.get("Nats-Pending-Messages")),
    unservedBytes: count(headers?.get("Nats-Pending-Bytes")),
    text,
  }
}

function classOf(code: number, text: string): PullStatus {
  switch (code) {
    case 100:
      return "heartbeat"
    case 400:
      return "refused"
    case 404:
    case 408:
      return "ended"
    case 409:
      if (/message size exceeds/i.test(text)) return "tooLarge"
      if (/consumer deleted|leadership change|server shutdown/i.test(text)) return "gone"
      if (/exceeded|push based/i.test(text)) return "refused"
      return "ended"
    case 503:
      return "gone"
    default:
      return "ended"
  }
}

function count(text: string | undefined): number | undefined {
  return text === undefined || !/^\d+$/.test(text) ? undefined : Number(text)
}
