import { Buffer, isUtf8 } from "node:buffer"

/**
 * The text of UTF-8 bytes. Half the cost of a small record is here, so this takes the shortest way: the lenient decoder, which writes
 * U+FFFD for what is not UTF-8, and the strict one only where that character is found. A byte order mark at the start is left out.
 * @throws TypeError when the bytes are not UTF-8
 */
export function utf8Text(bytes: Uint8Array): string {
  if (utf8Slice === undefined) return strict.decode(bytes)
  const text = utf8Slice.call(bytes, 0, bytes.length)
  if (text.includes("\ufffd")) return strict.decode(bytes)
  return text.charCodeAt(0) === byteOrderMark ? text.slice(1) : text
}

/** @throws TypeError when the bytes are not UTF-8; a byte order mark is a character like any other */
export function utf8TextWithMark(bytes: Uint8Array): string {
  return strictWithMark.decode(bytes)
}

/** Whether the bytes from `from` to before `to` are UTF-8. Short texts, which are mostly ASCII, are looked at without a view of them. */
export function isTextAt(bytes: Uint8Array, from: number, to: number): boolean {
  if (to - from > shortTextBytes) return isUtf8(bytes.subarray(from, to))
  for (let at = from; at < to; at++) {
    if ((bytes[at] as number) >= 128) return isUtf8(bytes.subarray(from, to))
  }
  return true
}

/** Below this the loop is quicker than the call. */
const shortTextBytes = 48

/** The same bytes as a `Uint8Array` of its own class: the `slice` of a `Buffer` is a view, and that of a `Uint8Array` a copy. */
export function plainView(bytes: Uint8Array): Uint8Array {
  if (bytes.constructor === Uint8Array) return bytes
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

const byteOrderMark = 0xfeff
const strict = new TextDecoder("utf-8", { fatal: true })
const strictWithMark = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })
/** Not in the types of Node, though its own code and many others call it; a platform without it has the decoder. */
const utf8Slice = (
  Buffer.prototype as unknown as { utf8Slice?: (this: Uint8Array, start: number, end: number) => string }
).utf8Slice
