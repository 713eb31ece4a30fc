/** A record's payload as a filter sees it: decoded once, and looked into by path. */

import { readCbor } from "./cbor.ts"
import type { PathSegment } from "./field-path.ts"
import { type FilterCodec, filterLimits } from "./filter.ts"

const strictUtf8 = new TextDecoder("utf-8", { fatal: true })

/** `envelope.ts` of the encryption: an encrypted payload begins so, and is longer than any CBOR value that does. */
const sealedMagic = [0xfa, 0x4d, 0x45] as const
const shortestEnvelopeBytes = 44

/** A payload that was decoded; `text` is what JSON was read from. */
export interface DecodedPayload {
  readonly value: unknown
  readonly text: string | undefined
}

/** @throws SyntaxError or TypeError for bytes that are not one value of the codec */
export function decodePayload(codec: FilterCodec, bytes: Uint8Array): DecodedPayload {
  if (codec === "cbor") return { value: readCbor(bytes, { deepest: filterLimits.payloadDepth }), text: undefined }
  const text = strictUtf8.decode(bytes)
  return { value: JSON.parse(text), text }
}

/** Whether the bytes are those of an encrypted record. */
export function isSealed(bytes: Uint8Array): boolean {
  return bytes.length >= shortestEnvelopeBytes && sealedMagic.every((byte, i) => bytes[i] === byte)
}

/** Whether it is too large to be decoded. */
export function isOversized(bytes: Uint8Array): boolean {
  return bytes.length > filterLimits.payloadBytes
}

/** The value at a path; `undefined` where there is none. */
export function valueAt(root: unknown, path: readonly PathSegment[]): unknown {
  let value = root
  for (const segment of path) {
    if (typeof value !== "object" || value === null) return undefined
    if (typeof segment === "number") value = Array.isArray(value) ? value[segment] : undefined
    else if (value instanceof Map) value = value.get(segment)
    else if (Array.isArray(value) || value instanceof Uint8Array) return undefined
    else value = Object.hasOwn(value, segment) ? (value as Record<string, unknown>)[segment] : undefined
    if (value === undefined) return undefined
  }
  return value
}
