/**
 * The hash of a record key that Kafka's Java client uses (murmur2, seed 0x9747b28c), with the sign bit cleared. Keyed records
 * therefore meet on the same partition whichever client wrote them.
 * @returns 0 to 2^31 − 1. The partition is this modulo the partition count.
 */
export function murmur2(key: Uint8Array): number {
  const length = key.length
  const m = 0x5bd1e995
  let h = 0x9747b28c ^ length
  let i = 0
  for (; i + 4 <= length; i += 4) {
    let k =
      (key[i] as number) |
      ((key[i + 1] as number) << 8) |
      ((key[i + 2] as number) << 16) |
      ((key[i + 3] as number) << 24)
    k = Math.imul(k, m)
    k ^= k >>> 24
    k = Math.imul(k, m)
    h = Math.imul(h, m) ^ k
  }
  const rest = length - i
  if (rest === 3) h ^= (key[i + 2] as number) << 16
  if (rest >= 2) h ^= (key[i + 1] as number) << 8
  if (rest >= 1) h = Math.imul(h ^ (key[i] as number), m)
  h ^= h >>> 13
  h = Math.imul(h, m)
  h ^= h >>> 15
  return h & 0x7fffffff
}
