/**
 * Looks over MessagePack bytes before they are decoded (https://github.com/msgpack/msgpack/blob/master/spec.md). The library decodes
 * extensions that only it knows, keys of any kind as text, and bytes that are not UTF-8 as U+FFFD; this refuses them, with the byte. What
 * passes is one whole value of the plain specification.
 */
import { DecodeError } from "@millrace/contract"
import { binaryLevels } from "./plain-values.ts"
import { isTextAt } from "./utf8.ts"

/** The one extension of the specification itself: a point in time. */
const timestampType = 0xff

/** How many values each level has yet to come, and whether it is a map, whose even counts are keys. One scan at a time uses them. */
const pending = new Float64Array(binaryLevels + 1)
const mapLevels = new Uint8Array(binaryLevels + 1)

/**
 * Passes for one whole value.
 * @param stringKeys Whether maps will be objects: then every key must be a text, and not `__proto__`.
 * @throws DecodeError that says what is wrong, and at which byte
 */
export function scanMsgpack(bytes: Uint8Array, stringKeys: boolean): void {
  const end = bytes.length
  let at = 0
  let level = 0
  pending[0] = 1
  mapLevels[0] = 0
  for (;;) {
    while (pending[level] === 0) {
      if (level === 0) {
        if (at !== end) throw new DecodeError(`${end - at} bytes follow the value, from byte ${at} on`)
        return
      }
      level--
    }
    const isKey = mapLevels[level] === 1 && ((pending[level] as number) & 1) === 0
    ;(pending[level] as number)--
    if (at >= end) throw truncated(at)
    const token = bytes[at] as number
    if (token < 0x80 || token >= 0xe0) {
      if (isKey && stringKeys) throw notText(at)
      at++
      continue
    }
    const start = at
    let length = 0
    let items = -1
    if (token >= 0xa0 && token < 0xc0) {
      length = token & 31
      at += 1
    } else if (token < 0xa0) {
      items = token < 0x90 ? (token & 15) * 2 : token & 15
      at += 1
    } else {
      const head = headBytes[token - 0xc0] as number
      if (head === 0) throw new DecodeError(`byte ${at} is 0x${token.toString(16)}, which begins no value`)
      if (at + head > end) throw truncated(at)
      const count = lengthBytes[token - 0xc0] as number
      for (let index = 1; index <= count; index++) length = length * 256 + (bytes[at + index] as number)
      at += head
      if (token >= 0xdc && token <= 0xdf) {
        items = token >= 0xde ? length * 2 : length
        length = 0
      } else if (count === 0) length = fixedBytes[token - 0xc0] as number
      if (isExtension(token)) checkExtension(bytes, at - 1, length)
    }
    if (items >= 0) {
      if (isKey && stringKeys) throw notText(start)
      const isMap = (token & 0xf0) === 0x80 || token >= 0xde
      // A value has a byte at least, so that a count that cannot be is seen before anything is made for it.
      if (items > end - at) throw truncated(at)
      if (++level > binaryLevels) throw new DecodeError(`nested deeper than ${binaryLevels} levels, at byte ${start}`)
      pending[level] = items
      mapLevels[level] = isMap ? 1 : 0
      continue
    }
    if (at + length > end) throw truncated(at)
    if (isText(token)) {
      checkText(bytes, at, at + length)
      if (isKey && stringKeys && length === 9) checkKey(bytes, at)
    } else if (isKey && stringKeys) throw notText(start)
    at += length
  }
}

function isText(token: number): boolean {
  return (token >= 0xa0 && token < 0xc0) || (token >= 0xd9 && token <= 0xdb)
}

function isExtension(token: number): boolean {
  return (token >= 0xc7 && token <= 0xc9) || (token >= 0xd4 && token <= 0xd8)
}

function checkText(bytes: Uint8Array, from: number, to: number): void {
  if (!isTextAt(bytes, from, to)) throw new DecodeError(`the text at byte ${from} is not UTF-8`)
}

function checkKey(bytes: Uint8Array, at: number): void {
  for (let index = 0; index < 9; index++) {
    if (bytes[at + index] !== "__proto__".charCodeAt(index)) return
  }
  throw new DecodeError(`the key at byte ${at} is __proto__, which means something else in JavaScript: decode to maps`)
}

function checkExtension(bytes: Uint8Array, typeAt: number, length: number): void {
  const type = bytes[typeAt] as number
  if (type === timestampType && (length === 4 || length === 8 || length === 12)) return
  const shown = type > 127 ? type - 256 : type
  throw new DecodeError(
    type === timestampType
      ? `the timestamp at byte ${typeAt} has ${length} bytes; it has 4, 8 or 12`
      : `the value at byte ${typeAt} is of the extension ${shown}; known is -1, a timestamp`,
  )
}

function truncated(at: number): DecodeError {
  return new DecodeError(`the bytes end inside of the value, at byte ${at}`)
}

function notText(at: number): DecodeError {
  return new DecodeError(`the key at byte ${at} is no text: decode to maps`)
}

/** For the tokens 0xc0 to 0xdf: the bytes before the content (0: no value), those of them that tell its length, and a fixed length. */
const headBytes = Uint8Array.of(
  ...[1, 0, 1, 1, 2, 3, 5, 3, 4, 6, 1, 1, 1, 1, 1, 1],
  ...[1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 5, 3, 5, 3, 5],
)
const lengthBytes = Uint8Array.of(
  ...[0, 0, 0, 0, 1, 2, 4, 1, 2, 4, 0, 0, 0, 0, 0, 0],
  ...[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4],
)
const fixedBytes = Uint8Array.of(
  ...[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 8, 1, 2, 4, 8],
  ...[1, 2, 4, 8, 1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0, 0],
)
