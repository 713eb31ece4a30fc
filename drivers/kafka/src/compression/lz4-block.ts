/**
 * The block format of lz4 (lz4/lz4, `lz4_Block_format.md`): sequences of a token (the lengths of literals and match, four bits each,
 * 15 going on in further bytes), literals, the distance of the match in 16 bits, little-endian. Matches have at least 4 bytes. The last
 * sequence has literals only: the last 5 bytes of a block are literals, and no match begins in its last 12.
 */
import { DecodeError } from "@millrace/contract"
import { clearMatches, copyMatch, fourAt, lastSeen, matchLength } from "./match-table.ts"

const leastMatch = 4
const lastLiterals = 5
const lastMatchBytes = 12
const farthest = 0xffff

/** The most bytes that a block of so many takes when it cannot be compressed. */
export function lz4Bound(bytes: number): number {
  return bytes + Math.ceil(bytes / 255) + 16
}

/** Compresses into `output`, where `lz4Bound` bytes must be free; answers the position behind. */
export function writeLz4Block(input: Uint8Array, output: Buffer, start: number): number {
  clearMatches()
  const end = input.length
  const last = end - lastMatchBytes
  let write = start
  let literal = 0
  let position = 0
  let misses = 64
  while (position < last) {
    const four = fourAt(input, position)
    const before = lastSeen(four, position)
    if (before < 0 || position - before > farthest || fourAt(input, before) !== four) {
      // The longer nothing is found, the larger the steps.
      position += misses++ >> 6
      continue
    }
    const more = matchLength(input, { a: position + leastMatch, b: before + leastMatch }, end - lastLiterals)
    write = putLiterals(input.subarray(literal, position), output, { start: write, match: more })
    const distance = position - before
    output[write++] = distance & 0xff
    output[write++] = distance >> 8
    if (more >= 15) write = putLength(more - 15, output, write)
    position += leastMatch + more
    literal = position
    misses = 64
  }
  return putLiterals(input.subarray(literal), output, { start: write, match: 0 })
}

function putLiterals(
  bytes: Uint8Array,
  output: Buffer,
  at: { readonly start: number; readonly match: number },
): number {
  let write = at.start
  const length = bytes.length
  output[write++] = (Math.min(15, length) << 4) | Math.min(15, at.match)
  if (length >= 15) write = putLength(length - 15, output, write)
  output.set(bytes, write)
  return write + length
}

function putLength(length: number, output: Buffer, start: number): number {
  let write = start
  let rest = length
  for (; rest >= 255; rest -= 255) output[write++] = 255
  output[write++] = rest
  return write
}

/**
 * Decompresses a block into `output` at `start`; answers the position behind.
 * @param limits.end Where the block must end at the latest.
 * @param limits.history How far back before `start` matches may reach.
 * @throws DecodeError
 */
export function readLz4Block(
  block: Uint8Array,
  output: Buffer,
  limits: { readonly start: number; readonly end: number; readonly history: number },
): number {
  const { start, end, history } = limits
  const limit = block.length
  let read = 0
  let write = start
  for (;;) {
    if (read >= limit) throw malformed("it ends where a sequence should begin")
    const token = block[read++] as number
    let literals = token >> 4
    if (literals === 15) {
      for (let byte = 255; byte === 255; literals += byte) {
        if (read >= limit) throw malformed("it ends within a length")
        byte = block[read++] as number
      }
    }
    if (literals > limit - read || literals > end - write) throw malformed(`${literals} literals do not fit`)
    if (literals >= 16) output.set(block.subarray(read, read + literals), write)
    else for (let i = 0; i < literals; i++) output[write + i] = block[read + i] as number
    read += literals
    write += literals
    if (read === limit) return write
    if (read + 2 > limit) throw malformed("it ends within a distance")
    const distance = (block[read] as number) | ((block[read + 1] as number) << 8)
    read += 2
    let length = token & 15
    if (length === 15) {
      for (let byte = 255; byte === 255; length += byte) {
        if (read >= limit) throw malformed("it ends within a length")
        byte = block[read++] as number
      }
    }
    length += leastMatch
    if (distance === 0 || distance > write - start + history) throw malformed(`a match reaches back ${distance} bytes`)
    if (length > end - write) throw malformed(`a match of ${length} bytes does not fit`)
    copyMatch(output, write, { distance, length })
    write += length
  }
}

function malformed(detail: string): DecodeError {
  return new DecodeError(`lz4: a block is malformed: ${detail}`)
}
