import { Buffer } from "node:buffer"
import {
  DecodeError,
  Headers,
  HeaderValue,
  InvalidError,
  RecordTooLargeError,
  type TopicName,
} from "@millrace/contract"
import { nodeCrypto } from "@millrace/runtime"
import { topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import type { PreparedRecord, SendableRecord } from "../record/outgoing-record.ts"
import type { RecordSealer, SealerContext } from "./encryptor.ts"
import {
  counterBytes,
  formAt,
  forms,
  looksSealed,
  nonceBytes,
  overheadBytes,
  readEnvelope,
  sealedHeader,
  tagBytes,
  topicBinding,
} from "./envelope.ts"
import { EnvelopeOpener } from "./envelope-opener.ts"
import { headerBlockBytes, writeHeaderBlock } from "./header-block.ts"
import type { KeyRing } from "./key-ring.ts"
import { type SubkeyLimits, SubkeySequence, subkeyLimits } from "./subkey-sequence.ts"
import { splitHeaders } from "./trace-headers.ts"

const cipherOptions = { authTagLength: tagBytes } as const
const nothing = new Uint8Array(0)

/** Puts records into envelopes, under the subkeys of one producer. */
export class EnvelopeSealer implements RecordSealer {
  readonly #ring: KeyRing
  readonly #limits: SealerContext["limits"]
  readonly #subkeys: SubkeySequence
  readonly #overhead: number
  readonly #nonce = Buffer.alloc(nonceBytes)
  /** The associated data of the last topic, for the last subkey: its envelope's prefix, then the topic. */
  #aad = Buffer.alloc(0)
  #aadPrefix: Buffer | undefined
  #aadStream = ""
  #aadTopic = ""
  #opener: EnvelopeOpener | undefined

  constructor(ring: KeyRing, context: SealerContext, limits: SubkeyLimits = subkeyLimits) {
    this.#ring = ring
    this.#limits = context.limits
    this.#subkeys = new SubkeySequence(ring.current, context.random, limits)
    this.#overhead = overheadBytes(ring.current.idBytes.length)
  }

  seal(topic: TopicName, record: SendableRecord): SendableRecord {
    if (record instanceof Uint8Array) return this.#sealBytes(topic, record, undefined)
    const { payload, headers } = record
    const { secret, open } = splitHeaders(headers)
    if (payload === null) return { ...record, headers: this.#tombstone(topic, secret, open) }
    const sealed = this.#sealBytes(topic, payload, secret.size === 0 ? undefined : secret)
    return { ...record, payload: sealed, headers: open }
  }

  isSealed(topic: TopicName, record: SendableRecord): boolean {
    const envelope = record instanceof Uint8Array ? record : envelopeOf(record)
    if (envelope === undefined || !looksSealed(envelope)) return false
    let keyId: string
    try {
      keyId = readEnvelope(envelope).keyId
    } catch (error) {
      // Bytes of the caller's that only begin so.
      if (error instanceof DecodeError) return false
      throw error
    }
    // Encrypted by somebody with other keys: it cannot be checked, and must not be wrapped again.
    if (this.#ring.get(keyId) === undefined) return true
    this.#opener ??= new EnvelopeOpener(this.#ring, { acceptsPlain: false })
    try {
      this.#opener.openEnvelope(topic, envelope)
      return true
    } catch (cause) {
      if (!(cause instanceof DecodeError)) throw cause
      throw new InvalidError(
        `the record is encrypted already, but not for topic "${topicText(topic)}" with key ${shown(keyId)}: resend it to the topic that it failed on`,
        { cause, context: { stream: topic.stream, topic: topic.topic, keyId } },
      )
    }
  }

  #sealBytes(topic: TopicName, payload: Uint8Array, headers: Headers | undefined): Uint8Array {
    const block = headers === undefined ? 0 : headerBlockBytes(headers)
    const sizeBytes = this.#overhead + block + payload.length
    const limitBytes = this.#limits.payloadBytes
    if (sizeBytes > limitBytes) throw tooLarge("payload", sizeBytes, limitBytes)
    const form = headers === undefined ? forms.payload : forms.headersAndPayload
    return this.#encrypt(topic, { form, headers, block, payload })
  }

  #tombstone(topic: TopicName, headers: Headers, open: Headers): Headers {
    const envelope = this.#encrypt(topic, {
      form: forms.tombstone,
      headers,
      block: headerBlockBytes(headers),
      payload: nothing,
    })
    const { headerValueBytes, headersBytes } = this.#limits
    const pieces: (readonly [string, HeaderValue])[] = []
    for (let at = 0; at < envelope.length; at += headerValueBytes) {
      pieces.push([sealedHeader, HeaderValue.raw(envelope.subarray(at, at + headerValueBytes))])
    }
    const sizeBytes = envelope.length + pieces.length * sealedHeader.length
    if (sizeBytes > headersBytes) throw tooLarge("header block", sizeBytes, headersBytes)
    return Headers.ofStored([...pieces, ...open])
  }

  #encrypt(topic: TopicName, plain: Plain): Uint8Array {
    const { form, headers, block, payload } = plain
    const counter = this.#subkeys.next(block + payload.length)
    const aad = this.#associate(topic)
    const start = this.#subkeys.prefix.length
    aad[formAt] = form
    aad.writeUInt32BE(counter, start - counterBytes)
    this.#nonce.writeUInt32BE(counter, nonceBytes - counterBytes)
    const cipher = nodeCrypto().createCipheriv("aes-256-gcm", this.#subkeys.subkey, this.#nonce, cipherOptions)
    cipher.setAAD(aad)
    const envelope = Buffer.allocUnsafe(start + block + payload.length + tagBytes)
    aad.copy(envelope, 0, 0, start)
    let end = start
    if (headers !== undefined) {
      const room = envelope.subarray(start, start + block)
      writeHeaderBlock(room, headers)
      room.set(cipher.update(room))
      end += block
    }
    envelope.set(cipher.update(payload), end)
    end += payload.length
    cipher.final()
    envelope.set(cipher.getAuthTag(), end)
    return new Uint8Array(envelope.buffer, envelope.byteOffset, envelope.length)
  }

  #associate(topic: TopicName): Buffer {
    const { prefix } = this.#subkeys
    if (this.#aadPrefix === prefix && this.#aadTopic === topic.topic && this.#aadStream === topic.stream) {
      return this.#aad
    }
    this.#aad = Buffer.concat([prefix, topicBinding(topic)])
    this.#aadPrefix = prefix
    this.#aadStream = topic.stream
    this.#aadTopic = topic.topic
    return this.#aad
  }
}

interface Plain {
  readonly form: number
  readonly headers: Headers | undefined
  /** Bytes of the header block; 0 without one. */
  readonly block: number
  readonly payload: Uint8Array
}

/** The envelope of a record that has nothing beside it, as records in envelopes are. */
function envelopeOf({ payload, headers }: PreparedRecord): Uint8Array | undefined {
  const { secret } = splitHeaders(headers)
  if (payload !== null) return secret.size === 0 ? payload : undefined
  const pieces: Uint8Array[] = []
  for (const [name, value] of secret) {
    if (name !== sealedHeader) return undefined
    pieces.push(value.bytes)
  }
  return Buffer.concat(pieces)
}

function tooLarge(what: string, sizeBytes: number, limitBytes: number): RecordTooLargeError {
  return new RecordTooLargeError(`the encrypted ${what} has ${sizeBytes} bytes; at most ${limitBytes} are allowed`, {
    context: { sizeBytes, limitBytes },
  })
}
