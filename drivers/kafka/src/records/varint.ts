/** Kafka's varints: zigzag (0, −1, 1, −2 … are 0, 1, 2, 3 …), base 128, least significant group first. */

/** Bytes of a 32-bit number. */
export function varintBytes(value: number): number {
  const zigzag = ((value << 1) ^ (value >> 31)) >>> 0
  if (zigzag < 0x80) return 1
  if (zigzag < 0x4000) return 2
  if (zigzag < 0x20_0000) return 3
  return zigzag < 0x1000_0000 ? 4 : 5
}

/** Writes a 32-bit number; answers the position behind it. */
export function putVarint(value: number, bytes: Uint8Array, start: number): number {
  let position = start
  let rest = ((value << 1) ^ (value >> 31)) >>> 0
  while (rest > 0x7f) {
    bytes[position++] = (rest & 0x7f) | 0x80
    rest >>>= 7
  }
  bytes[position++] = rest
  return position
}

/** Bytes of a number of up to 64 bits; what is no bigint must fit into 32. */
export function varlongBytes(value: number | bigint): number {
  if (typeof value === "number") return varintBytes(value)
  let bytes = 1
  for (let rest = zigzag64(value) >> 7n; rest > 0n; rest >>= 7n) bytes++
  return bytes
}

/** Writes such a number; answers the position behind it. */
export function putVarlong(value: number | bigint, bytes: Uint8Array, start: number): number {
  if (typeof value === "number") return putVarint(value, bytes, start)
  let position = start
  let rest = zigzag64(value)
  while (rest > 0x7fn) {
    bytes[position++] = Number(rest & 0x7fn) | 0x80
    rest >>= 7n
  }
  bytes[position++] = Number(rest)
  return position
}

function zigzag64(value: bigint): bigint {
  return BigInt.asUintN(64, (value << 1n) ^ (value >> 63n))
}
