/** The bytes of a received message that nats.js keeps to itself: its headers as they came, and its reply subject undecoded. */
import type { Msg } from "@nats-io/transport-node"

/**
 * What a message of nats.js 3.4 consists of. The client's public headers are trimmed, grouped by name and decoded for every reader;
 * the record's own bytes are wanted here. A release of the client that is made otherwise is noticed by the tests of this file, and the
 * package names the exact version.
 */
interface MessageParts {
  readonly _msg?: { readonly hdr?: number; readonly reply?: Uint8Array }
  readonly _rdata?: Uint8Array
}

/** The header block as it came, `undefined` when the message has none. A view of the client's buffer, which is never reused. */
export function rawHeaders(message: Msg): Uint8Array | undefined {
  const length = rawHeadBytes(message)
  return length > 0 ? rawBytes(message).subarray(0, length) : undefined
}

/** The header block as it came, if there is one, and the payload behind it. A view of the client's buffer, which is never reused. */
export function rawBytes(message: Msg): Uint8Array {
  return (message as unknown as MessageParts)._rdata ?? noBytes
}

/** Bytes of the header block; 0 when the message has none. */
export function rawHeadBytes(message: Msg): number {
  const { _msg, _rdata } = message as unknown as MessageParts
  return _rdata === undefined ? 0 : Math.max(0, _msg?.hdr ?? 0)
}

/** The reply subject in bytes, `undefined` when there is none. */
export function rawReply(message: Msg): Uint8Array | undefined {
  return (message as unknown as MessageParts)._msg?.reply
}

const noBytes = new Uint8Array(0)
