/** A second reader of encrypted records, written from docs/encryption.md with WebCrypto alone: it shares no code with the first. */
import { webcrypto } from "node:crypto"

const { subtle } = webcrypto

export interface Decoded {
  readonly keyId: string
  readonly salt: string
  readonly nonce: string
  readonly payload: Uint8Array | null
  readonly headers: readonly { readonly name: string; readonly kind: number; readonly value: Uint8Array }[]
}

/** @param keys Raw keys by id. */
export async function decodeEnvelope(
  envelope: Uint8Array,
  place: { readonly stream: string; readonly topic: string },
  keys: Readonly<Record<string, Uint8Array>>,
): Promise<Decoded> {
  const bytes = new Uint8Array(envelope)
  const view = new DataView(bytes.buffer)
  if (view.getUint32(0) !== 0xfa4d4501) throw new Error("not an envelope of version 1")
  const form = view.getUint8(4)
  const idEnd = 6 + view.getUint8(5)
  const keyId = new TextDecoder().decode(bytes.slice(6, idEnd))
  const salt = bytes.slice(idEnd, idEnd + 16)
  const clear = bytes.slice(0, idEnd + 20)
  const nonce = new Uint8Array(12)
  nonce.set(bytes.slice(idEnd + 16, idEnd + 20), 8)

  const raw = await subtle.importKey("raw", new Uint8Array(keys[keyId] as Uint8Array), "HKDF", false, ["deriveKey"])
  const hkdf = { name: "HKDF", hash: "SHA-256", salt, info: new TextEncoder().encode("millrace/encryption/1") }
  const subkey = await subtle.deriveKey(hkdf, raw, { name: "AES-GCM", length: 256 }, false, ["decrypt"])
  const additionalData = concat([clear, text16(place.stream), text16(place.topic)])
  const gcm = { name: "AES-GCM", iv: nonce, additionalData, tagLength: 128 }
  const plain = new Uint8Array(await subtle.decrypt(gcm, subkey, bytes.slice(clear.length)))

  const told = { keyId, salt: hex(salt), nonce: hex(nonce) }
  if (form === 1) return { ...told, payload: plain, headers: [] }
  const { headers, end } = headersOf(plain)
  if (form === 2) return { ...told, payload: plain.slice(end), headers }
  if (form === 3 && end === plain.length) return { ...told, payload: null, headers }
  throw new Error(`form ${form}`)
}

function headersOf(plain: Uint8Array): { readonly headers: Decoded["headers"]; readonly end: number } {
  const view = new DataView(plain.buffer)
  const end = 4 + view.getUint32(0)
  const headers: { name: string; kind: number; value: Uint8Array }[] = []
  for (let at = 4; at < end; ) {
    const nameBytes = view.getUint16(at)
    const name = new TextDecoder().decode(plain.slice(at + 2, at + 2 + nameBytes))
    const kind = view.getUint8(at + 2 + nameBytes)
    const valueBytes = view.getUint32(at + 3 + nameBytes)
    const valueAt = at + 7 + nameBytes
    headers.push({ name, kind, value: plain.slice(valueAt, valueAt + valueBytes) })
    at = valueAt + valueBytes
  }
  return { headers, end }
}

function text16(text: string): Uint8Array {
  const bytes = new TextEncoder().encode(text)
  return concat([Uint8Array.of(bytes.length >> 8, bytes.length & 255), bytes])
}

function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")
}
