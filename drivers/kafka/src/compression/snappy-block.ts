/**
 * The block format of snappy (google/snappy, `format_description.txt`): the uncompressed length as a varint, then elements. The low
 * two bits of an element's first byte say what it is: 0 a literal, 1 a match of 4 to 11 bytes at up to 2,047, 2 one of 1 to 64 at up
 * to 65,535, 3 one of 1 to 64 at up to 2^32 − 1.
 */
import { DecodeError } from "@millrace/contract"
import { clearMatches, copyMatch, fourAt, lastSeen, matchLength } from "./match-table.ts"

/** No element of n bytes makes more than 22 n. */
const mostExpansion = 22
/** Bytes at the end of a block in which no match is looked for. */
const tailBytes = 15
/** What blocks that are compressed here may have: matches then reach back everywhere in 16 bits. */
export const longestSnappyBlock: number = 1 << 15

/** The most bytes that a block of so many takes when it cannot be compressed. */
export function snappyBound(bytes: number): number {
  return 32 + bytes + Math.ceil(bytes / 6)
}

/** Compresses at most `longestSnappyBlock` bytes into `output`; answers the position behind them. `snappyBound` bytes must be free. */
export function writeSnappyBlock(input: Uint8Array, output: Buffer, start: number): number {
  let write = start
  let rest = input.length
  while (rest > 0x7f) {
    output[write++] = (rest & 0x7f) | 0x80
    rest >>>= 7
  }
  output[write++] = rest
  clearMatches()
  const last = input.length - tailBytes
  let literal = 0
  let position = 0
  let misses = 32
  while (position < last) {
    const four = fourAt(input, position)
    const before = lastSeen(four, position)
    if (before < 0 || fourAt(input, before) !== four) {
      // The longer nothing is found, the larger the steps.
      position += misses++ >> 5
      continue
    }
    if (position > literal) write = putLiteral(input.subarray(literal, position), output, write)
    const length = 4 + matchLength(input, { a: position + 4, b: before + 4 }, input.length)
    write = putMatches({ distance: position - before, length }, output, write)
    position += length
    literal = position
    misses = 32
  }
  return literal < input.length ? putLiteral(input.subarray(literal), output, write) : write
}

function putLiteral(bytes: Uint8Array, output: Buffer, start: number): number {
  const rest = bytes.length - 1
  let write = start
  if (rest < 60) {
    output[write++] = rest << 2
  } else if (rest < 0x100) {
    output[write++] = 60 << 2
    output[write++] = rest
  } else {
    output[write++] = 61 << 2
    output[write++] = rest & 0xff
    output[write++] = rest >> 8
  }
  output.set(bytes, write)
  return write + bytes.length
}

function putMatches(
  match: { readonly distance: number; readonly length: number },
  output: Buffer,
  start: number,
): number {
  const { distance } = match
  let { length } = match
  let write = start
  while (length > 0) {
    // What is left behind an element is at least four bytes, so that the shortest form can take it.
    const part = length >= 68 ? 64 : length > 64 ? 60 : length
    if (part >= 4 && part <= 11 && distance < 2048) {
      output[write++] = 1 | ((part - 4) << 2) | ((distance >> 8) << 5)
      output[write++] = distance & 0xff
    } else {
      output[write++] = 2 | ((part - 1) << 2)
      output[write++] = distance & 0xff
      output[write++] = distance >> 8
    }
    length -= part
  }
  return write
}

/** The uncompressed length at the head of a block. @throws DecodeError when there is none, or it cannot be that large */
export function snappyLength(block: Uint8Array): { readonly length: number; readonly bytes: number } {
  let length = 0
  for (let i = 0; i < 5; i++) {
    const byte = block[i]
    if (byte === undefined) break
    length += (byte & 0x7f) * 2 ** (7 * i)
    if (byte < 0x80) {
      if (length > block.length * mostExpansion) throw malformed(`${block.length} bytes cannot hold ${length}`)
      return { length, bytes: i + 1 }
    }
  }
  throw malformed("there is no length at its head")
}

/** Decompresses a block into `output` at `start`, where its whole length must be free. @throws DecodeError */
export function readSnappyBlock(block: Uint8Array, output: Buffer, start: number): void {
  const { length: whole, bytes: head } = snappyLength(block)
  const end = start + whole
  const limit = block.length
  let read = head
  let write = start
  while (read < limit) {
    const tag = block[read++] as number
    const kind = tag & 3
    if (kind === 0) {
      let length = tag >> 2
      if (length >= 60) {
        const extra = length - 59
        if (read + extra > limit) throw malformed("it ends within a length")
        length = littleEndian(block, read, extra)
        read += extra
      }
      length++
      if (length > limit - read || length > end - write) throw malformed(`a literal of ${length} bytes does not fit`)
      output.set(block.subarray(read, read + length), write)
      read += length
      write += length
      continue
    }
    const extra = kind === 3 ? 4 : kind
    if (read + extra > limit) throw malformed("it ends within a match")
    const length = kind === 1 ? 4 + ((tag >> 2) & 7) : 1 + (tag >> 2)
    const distance = littleEndian(block, read, extra) + (kind === 1 ? (tag >> 5) << 8 : 0)
    read += extra
    if (distance === 0 || distance > write - start) throw malformed(`a match reaches back ${distance} bytes`)
    if (length > end - write) throw malformed(`a match of ${length} bytes does not fit`)
    copyMatch(output, write, { distance, length })
    write += length
  }
  if (write !== end) throw malformed(`it holds ${write - start} bytes, not ${whole}`)
}

function littleEndian(bytes: Uint8Array, start: number, count: number): number {
  let value = 0
  for (let i = count - 1; i >= 0; i--) value = value * 256 + (bytes[start + i] as number)
  return value
}

function malformed(detail: string): DecodeError {
  return new DecodeError(`snappy: a block is malformed: ${detail}`)
}
