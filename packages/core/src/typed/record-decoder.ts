import type { Codec } from "../codec/codec.ts"
import { decodePayload, settled } from "../codec/decoding.ts"
import type { Message } from "../record/message.ts"
import { TypedDecodeError } from "./typed-decode-error.ts"

/** What a typed reader or consumer makes values of messages with: a codec, and where its failures happen. */
export class RecordDecoder<T = unknown> {
  readonly codec: Codec<T>
  /** A payload that does not decode is handed out as it is, flagged, in place of an error (`onDecodeError: "deliver-raw"`). */
  readonly deliversRaw: boolean
  /** How many payloads were handed out as they are. */
  rawCount = 0

  constructor(codec: Codec<T>, options: { readonly deliversRaw: boolean } = { deliversRaw: false }) {
    this.codec = codec
    this.deliversRaw = options.deliversRaw
  }

  /** Whether the codec has to be asked before messages are decoded (`Codec.prepare`). */
  get prepares(): boolean {
    return this.codec.prepare !== undefined
  }

  /** The value of a payload. @throws TypedDecodeError with the record's position, whatever the codec throws */
  value(payload: Uint8Array, message: Message): T {
    try {
      return decodePayload(this.codec, payload, message)
    } catch (cause) {
      throw new TypedDecodeError(message, { codec: this.codec.name, cause })
    }
  }

  /** Whether tombstones have a value of their own. */
  get takesTombstones(): boolean {
    return this.codec.decodeTombstone !== undefined
  }

  /** The value that stands for a tombstone. @throws as `value` */
  tombstone(message: Message): T {
    try {
      return settled(this.codec.decodeTombstone?.(message) as T)
    } catch (cause) {
      throw new TypedDecodeError(message, { codec: this.codec.name, cause })
    }
  }
}
