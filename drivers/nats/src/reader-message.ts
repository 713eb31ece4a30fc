/**
 * One message as a pull consumer delivers it. Its reply subject tells its place:
 *
 *     $JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<ns since 1970>.<pending>
 *     $JS.ACK.<domain>.<account>.<stream>.<consumer>.…the same….[<token>]     (the longer form, ADR-15)
 *
 * Names have no dots, so the numbers are found by counting from the front. Status messages (ADR-13, ADR-37) have no such reply.
 */
import { MillraceError } from "@millrace/contract"
import type { Msg } from "@nats-io/transport-node"
import type { StoredMessage } from "./encoded-batch.ts"
import { rawBytes, rawHeadBytes } from "./raw-message.ts"

const prefix = Buffer.from("$JS.ACK.")
const dot = 46
const zero = 48

/** Where the stream sequence begins in replies of one consumer: what stands before it is the same for each of its messages. */
export class ReplyShape {
  #start = 0

  /**
   * The stream sequence of a reply, or 0 when it is not of the form above.
   * The prefix is measured once, and checked by its last dot for every other message.
   */
  sequence(reply: Uint8Array): number {
    if (this.#start === 0 || reply[this.#start - 1] !== dot) this.#start = startOfSequence(reply)
    return this.#start === 0 ? 0 : numberAt(reply, this.#start)
  }
}

/** The client's message has this method, but its public type does not say so. */
interface Sized {
  size(): number
}

/** What a reader keeps of one message. Headers, payload and time are looked at only when somebody asks. */
export class ReaderMessage implements StoredMessage {
  readonly sequence: number
  /** As the server counts it against `max_bytes`: subject, reply, headers and payload. */
  readonly bytes: number
  readonly #message: Msg

  constructor(message: Msg, sequence: number) {
    this.#message = message
    this.sequence = sequence
    this.bytes = (message as unknown as Sized).size()
  }

  get raw(): Uint8Array {
    return rawBytes(this.#message)
  }

  get headBytes(): number {
    return rawHeadBytes(this.#message)
  }

  /** The append time: the server's, cut to whole microseconds. @throws MillraceError (protocol) */
  timestampMicros(): bigint {
    return BigInt(this.#token(2)) / 1000n
  }

  /** How many messages the consumer had behind this one when it was sent. @throws MillraceError (protocol) */
  pending(): number {
    return Number(this.#token(3))
  }

  /** The token so many behind the stream sequence. */
  #token(behind: number): string {
    const { reply } = this.#message
    const tokens = (reply ?? "").split(".")
    const token = tokens[placeOfSequence(tokens.length) + behind]
    if (token !== undefined && /^\d+$/.test(token)) return token
    throw new MillraceError(
      "protocol",
      `a message came with the reply subject ${JSON.stringify(reply)}, which tells no place in a stream`,
    )
  }
}

/** Which token is the stream sequence, by how many there are. */
function placeOfSequence(tokens: number): number {
  return tokens < 11 ? 5 : 7
}

/** 0 when the reply is of another form. */
function startOfSequence(reply: Uint8Array): number {
  for (let at = 0; at < prefix.length; at++) if (reply[at] !== prefix[at]) return 0
  let dots = 0
  for (const byte of reply) if (byte === dot) dots++
  if (dots < 8) return 0
  let wanted = placeOfSequence(dots + 1)
  for (let at = 0; at < reply.length; at++) {
    if (reply[at] === dot && --wanted === 0) return at + 1
  }
  return 0
}

/** The decimal number that begins here and ends at a dot; 0 when there is none below 2^53. */
function numberAt(bytes: Uint8Array, start: number): number {
  let value = 0
  for (let at = start; at < bytes.length; at++) {
    const byte = bytes[at] as number
    if (byte === dot) return value <= Number.MAX_SAFE_INTEGER ? value : 0
    const digit = byte - zero
    if (digit < 0 || digit > 9) return 0
    value = value * 10 + digit
  }
  return 0
}
