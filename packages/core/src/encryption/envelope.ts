/**
 * An encrypted record. Numbers are big-endian.
 *
 * | bytes | what |
 * | --- | --- |
 * | 3 | `fa 4d 45`: no text in UTF-8 begins so |
 * | 1 | version: 1 |
 * | 1 | form: 1 payload, 2 headers and payload, 3 tombstone with its headers |
 * | 1 | n, 1 to 64 |
 * | n | key id, UTF-8 |
 * | 16 | salt of the subkey |
 * | 4 | counter: the last 4 of the nonce's 12 bytes; the others are 0 |
 * | .. | ciphertext |
 * | 16 | tag |
 *
 * subkey: HKDF-SHA256(key, salt, info "millrace/encryption/1"), 32 bytes. Cipher: AES-256-GCM. Associated data: everything before the
 * ciphertext, then u16 length and UTF-8 of the stream, u16 length and UTF-8 of the topic. Plaintext by form: 1 the payload; 2 the header
 * block (`header-block.ts`), then the payload; 3 the header block.
 *
 * It is the payload of the record; that of a tombstone, whose payload has to stay absent, is the value of the header `millrace-sealed`,
 * in pieces where the backend's values are shorter.
 */
import { Buffer } from "node:buffer"
import { DecodeError, type TopicName } from "@millrace/contract"
import { longestKeyIdBytes, saltBytes } from "./key-ring.ts"

const envelopeVersion = 1
/** The header that holds a tombstone's envelope. */
export const sealedHeader: string = "millrace-sealed"
export const tagBytes: number = 16
export const nonceBytes: number = 12
/** Of the nonce, as much as is written. */
export const counterBytes: number = 4

/** What the plaintext is. Stored: never renumber. */
export const forms = { payload: 1, headersAndPayload: 2, tombstone: 3 } as const

const magic = Buffer.from([0xfa, 0x4d, 0x45])
const versionAt: number = magic.length
/** Where the form stands. */
export const formAt: number = versionAt + 1
const idLengthAt = formAt + 1
const idAt = idLengthAt + 1

/** Bytes before the ciphertext, for a key id of so many bytes. */
function prefixBytes(idBytes: number): number {
  return idAt + idBytes + saltBytes + counterBytes
}

/** Everything that an envelope adds to its plaintext. */
export function overheadBytes(idBytes: number): number {
  return prefixBytes(idBytes) + tagBytes
}

/** The bytes before the ciphertext for one subkey, with form and counter still 0. */
export function newPrefix(idBytes: Uint8Array, salt: Uint8Array): Buffer {
  const prefix = Buffer.alloc(prefixBytes(idBytes.length))
  prefix.set(magic)
  prefix[versionAt] = envelopeVersion
  prefix[idLengthAt] = idBytes.length
  prefix.set(idBytes, idAt)
  prefix.set(salt, idAt + idBytes.length)
  return prefix
}

/** Whether the bytes begin as an envelope does, of whatever version. */
export function looksSealed(bytes: Uint8Array): boolean {
  return bytes.length > versionAt && bytes[0] === magic[0] && bytes[1] === magic[1] && bytes[2] === magic[2]
}

/** The parts of an envelope. */
export interface EnvelopeParts {
  readonly form: number
  readonly keyId: string
  readonly salt: Uint8Array
  /** Bytes before the ciphertext. */
  readonly prefixBytes: number
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Takes an envelope apart, as far as that needs no key. @throws DecodeError for another version and for one that is cut off or malformed */
export function readEnvelope(bytes: Uint8Array): EnvelopeParts {
  if (!looksSealed(bytes)) throw new DecodeError("it is not encrypted")
  if (bytes[versionAt] !== envelopeVersion) {
    throw new DecodeError(
      `it is encrypted in version ${bytes[versionAt]} of the format; this release reads version ${envelopeVersion}`,
    )
  }
  const idLength = bytes[idLengthAt]
  if (idLength === undefined) throw cutOff(bytes)
  if (idLength < 1 || idLength > longestKeyIdBytes) {
    throw new DecodeError(`its key id has ${idLength} bytes; a key id has 1 to ${longestKeyIdBytes}`)
  }
  if (bytes.length < overheadBytes(idLength)) throw cutOff(bytes)
  const form = bytes[formAt] as number
  if (form < forms.payload || form > forms.tombstone) throw new DecodeError(`its form is ${form}; a form is 1 to 3`)
  return { form, keyId: idOf(bytes, idLength), salt: saltOf(bytes, idLength), prefixBytes: prefixBytes(idLength) }
}

/** The part of the associated data that names the topic. */
export function topicBinding({ stream, topic }: TopicName): Buffer {
  const parts = [stream, topic].map((name) => Buffer.from(name))
  return Buffer.concat(
    parts.flatMap((name) => {
      const length = Buffer.alloc(2)
      length.writeUInt16BE(name.length)
      return [length, name]
    }),
  )
}

function idOf(bytes: Uint8Array, length: number): string {
  try {
    return strictUtf8.decode(bytes.subarray(idAt, idAt + length))
  } catch (cause) {
    throw new DecodeError("its key id is not UTF-8", { cause })
  }
}

function saltOf(bytes: Uint8Array, idLength: number): Uint8Array {
  const at = idAt + idLength
  return bytes.subarray(at, at + saltBytes)
}

function cutOff(bytes: Uint8Array): DecodeError {
  return new DecodeError(`its envelope is cut off after ${bytes.length} bytes`)
}
