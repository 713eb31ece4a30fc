/**
 * The format of Apache Iggy's own clients: the payload is `[nonce 12][ciphertext][tag 16]` under AES-256-GCM with a random nonce and
 * no associated data. Nothing tells the key, the format or the topic.
 */
import { Buffer } from "node:buffer"
import type { KeyObject } from "node:crypto"
import { DecodeError, Headers, InvalidError, RecordTooLargeError, type TopicName } from "@millrace/contract"
import type { Random } from "@millrace/runtime"
import { nodeCrypto } from "@millrace/runtime"
import { OptionReader } from "../client/options.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import type { Encryptor, OpenedContent, RecordOpener, RecordSealer, SealedContent, SealerContext } from "./encryptor.ts"
import { nonceBytes, tagBytes } from "./envelope.ts"
import { secretKey } from "./key-ring.ts"
import { KeyUse, mostRandomNonces } from "./key-use.ts"
import { splitHeaders } from "./trace-headers.ts"

/** Options of `iggyEncryptor`. */
export interface IggyEncryptorOptions {
  /** 32 bytes, copied. Iggy's clients take it as base64. */
  readonly key: Uint8Array
  /**
   * Records that this process may encrypt under the key, 1 to 2^32. Default 2^32, which is what all processes together may: where several
   * write under one key, give each its share.
   */
  readonly maxRecords?: number
}

const overhead = nonceBytes + tagBytes
const cipherOptions = { authTagLength: tagBytes } as const

/**
 * Encryption as Apache Iggy's own clients do it, for topics that they read or write too (table 2.7 of the options). Its random nonces
 * wear a key out after 2^32 records, so it counts, and refuses to go on. It has no place for tombstones and headers: sends with them are
 * refused. Prefer `encryptor` wherever Millrace alone reads.
 * @throws InvalidError for a key that has not 32 bytes, or a limit out of range
 */
export function iggyEncryptor(options: IggyEncryptorOptions): Encryptor {
  const read = new OptionReader<IggyEncryptorOptions>("iggyEncryptor", options, ["key", "maxRecords"])
  const limit = read.whole("maxRecords", { min: 1, max: mostRandomNonces, fallback: mostRandomNonces })
  const key = secretKey(options?.key, 'iggyEncryptor: option "key"')
  const use = KeyUse.of(options.key)
  return Object.freeze({
    format: "iggy",
    sealer: (context: SealerContext) => new IggySealer(key, { use, limit }, context),
    opener: () => new IggyOpener(key),
  })
}

class IggySealer implements RecordSealer {
  readonly #key: KeyObject
  readonly #use: KeyUse
  readonly #limit: number
  readonly #random: Random
  readonly #payloadBytes: number

  constructor(key: KeyObject, bound: { readonly use: KeyUse; readonly limit: number }, context: SealerContext) {
    this.#key = key
    this.#use = bound.use
    this.#limit = bound.limit
    this.#random = context.random
    this.#payloadBytes = context.limits.payloadBytes
  }

  seal(_topic: TopicName, record: SendableRecord): SendableRecord {
    if (record instanceof Uint8Array) return this.#encrypt(record)
    const { payload, headers } = record
    if (payload === null) throw new InvalidError("the encryption of Apache Iggy's clients has no form for a tombstone")
    const { secret } = splitHeaders(headers)
    if (secret.size > 0) {
      const names = Array.from(secret, ([name]) => JSON.stringify(name)).join(", ")
      throw new InvalidError(
        `headers (${names}) cannot be sent in the encryption of Apache Iggy's clients: send the record without them, or use encryptor()`,
      )
    }
    return { ...record, payload: this.#encrypt(payload) }
  }

  isSealed(_topic: TopicName, record: SendableRecord): boolean {
    const payload =
      record instanceof Uint8Array ? record : splitHeaders(record.headers).secret.size === 0 ? record.payload : null
    if (payload === null) return false
    try {
      decrypt(this.#key, payload)
      return true
    } catch (error) {
      if (error instanceof DecodeError) return false
      throw error
    }
  }

  #encrypt(payload: Uint8Array): Uint8Array {
    const sizeBytes = payload.length + overhead
    if (sizeBytes > this.#payloadBytes) {
      const limitBytes = this.#payloadBytes
      throw new RecordTooLargeError(`the encrypted payload has ${sizeBytes} bytes; at most ${limitBytes} are allowed`, {
        context: { sizeBytes, limitBytes },
      })
    }
    this.#use.spend(this.#limit)
    const sealed = Buffer.allocUnsafe(sizeBytes)
    for (let at = 0; at < nonceBytes; at += 4) sealed.writeUInt32BE(this.#random.uint32(), at)
    const cipher = nodeCrypto().createCipheriv("aes-256-gcm", this.#key, sealed.subarray(0, nonceBytes), cipherOptions)
    sealed.set(cipher.update(payload), nonceBytes)
    cipher.final()
    sealed.set(cipher.getAuthTag(), sizeBytes - tagBytes)
    return new Uint8Array(sealed.buffer, sealed.byteOffset, sizeBytes)
  }
}

class IggyOpener implements RecordOpener {
  readonly #key: KeyObject

  constructor(key: KeyObject) {
    this.#key = key
  }

  open(_topic: TopicName, { payload, headers }: SealedContent): OpenedContent {
    if (payload === null)
      throw new DecodeError("it is a tombstone, for which the encryption of Apache Iggy's clients has no form")
    return { payload: decrypt(this.#key, payload), headers: headersBeside(headers) }
  }
}

/** Plain headers were not encrypted and are not shown; a block that does not decode is one that Iggy's clients have encrypted. */
function headersBeside(headers: () => Headers): Headers | DecodeError {
  try {
    headers()
    return Headers.empty
  } catch (cause) {
    if (!(cause instanceof DecodeError)) throw cause
    return new DecodeError("the headers are encrypted or malformed, and cannot be read", { cause })
  }
}

function decrypt(key: KeyObject, sealed: Uint8Array): Uint8Array {
  if (sealed.length < overhead) {
    throw new DecodeError(`it has ${sealed.length} bytes, and an encrypted payload has at least ${overhead}`)
  }
  const end = sealed.length - tagBytes
  let plain: Buffer
  try {
    const decipher = nodeCrypto().createDecipheriv("aes-256-gcm", key, sealed.subarray(0, nonceBytes), cipherOptions)
    decipher.setAuthTag(sealed.subarray(end))
    plain = decipher.update(sealed.subarray(nonceBytes, end))
    decipher.final()
  } catch (cause) {
    throw new DecodeError("its tag does not fit: it is not encrypted, was altered, or was encrypted with another key", {
      cause,
    })
  }
  return new Uint8Array(plain.buffer, plain.byteOffset, plain.length)
}
