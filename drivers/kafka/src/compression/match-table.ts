/**
 * Where a sequence of four bytes was seen last: what both snappy and lz4 find their matches with. One table serves all blocks,
 * since they are compressed one after the other and each forgets what was before it.
 */

const hashBits = 13
const positions = new Int32Array(1 << hashBits)

/** Forgets everything. */
export function clearMatches(): void {
  positions.fill(-1)
}

/** The position, counted from any fixed place, at which a hash of the four bytes was last seen, or −1; it is now seen at `position`. */
export function lastSeen(four: number, position: number): number {
  const hash = Math.imul(four, 0x9e3779b1) >>> (32 - hashBits)
  const before = positions[hash] as number
  positions[hash] = position
  return before
}

/** The four bytes at a position, little-endian. */
export function fourAt(bytes: Uint8Array, position: number): number {
  return (
    (bytes[position] as number) |
    ((bytes[position + 1] as number) << 8) |
    ((bytes[position + 2] as number) << 16) |
    ((bytes[position + 3] as number) << 24)
  )
}

/** How many bytes behind `a` and `b` are equal, up to where `a` reaches `end`; `b` lies before `a`. */
export function matchLength(bytes: Uint8Array, pair: { readonly a: number; readonly b: number }, end: number): number {
  let { a, b } = pair
  while (a < end && bytes[a] === bytes[b]) {
    a++
    b++
  }
  return a - pair.a
}

/**
 * Copies from the output to its end, as matches say it. They may reach into what they write themselves, which repeats it.
 */
export function copyMatch(
  output: Buffer,
  at: number,
  match: { readonly distance: number; readonly length: number },
): void {
  const { distance, length } = match
  const from = at - distance
  if (distance >= length) {
    if (length >= 32) output.copyWithin(at, from, from + length)
    else for (let i = 0; i < length; i++) output[at + i] = output[from + i] as number
    return
  }
  if (distance === 1) {
    output.fill(output[from] as number, at, at + length)
    return
  }
  for (let i = 0; i < length; i++) output[at + i] = output[from + i] as number
}
