/** XXH32 (xxHash specification, section "XXH32 algorithm"), with seed 0: the checksum of lz4 frames. */

const prime1 = 0x9e3779b1
const prime2 = 0x85ebca77
const prime3 = 0xc2b2ae3d
const prime4 = 0x27d4eb2f
const prime5 = 0x165667b1

/** @returns 0 to 2^32 − 1 */
export function xxh32(bytes: Uint8Array): number {
  const length = bytes.length
  let position = 0
  let hash = prime5
  if (length >= 16) {
    let a = (prime1 + prime2) | 0
    let b = prime2 | 0
    let c = 0
    let d = -prime1 | 0
    for (; position <= length - 16; position += 16) {
      a = round(a, wordAt(bytes, position))
      b = round(b, wordAt(bytes, position + 4))
      c = round(c, wordAt(bytes, position + 8))
      d = round(d, wordAt(bytes, position + 12))
    }
    hash = (rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18)) | 0
  }
  hash = (hash + length) | 0
  for (; position <= length - 4; position += 4) {
    hash = Math.imul(rotated((hash + Math.imul(wordAt(bytes, position), prime3)) | 0, 17), prime4)
  }
  for (; position < length; position++) {
    hash = Math.imul(rotated((hash + Math.imul(bytes[position] as number, prime5)) | 0, 11), prime1)
  }
  hash = Math.imul(hash ^ (hash >>> 15), prime2)
  hash = Math.imul(hash ^ (hash >>> 13), prime3)
  return (hash ^ (hash >>> 16)) >>> 0
}

function round(lane: number, word: number): number {
  return Math.imul(rotated((lane + Math.imul(word, prime2)) | 0, 13), prime1)
}

function rotated(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits))
}

function wordAt(bytes: Uint8Array, position: number): number {
  return (
    (bytes[position] as number) |
    ((bytes[position + 1] as number) << 8) |
    ((bytes[position + 2] as number) << 16) |
    ((bytes[position + 3] as number) << 24)
  )
}
