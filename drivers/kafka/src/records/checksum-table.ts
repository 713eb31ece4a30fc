/** CRC-32C by table, eight bytes a step. */

/** Reversed (RFC 3720, section 12.1: 0x11edc6f41). */
const polynomial = 0x82f63b78

const tables = makeTables()

/** Of the bytes from `start` on. @returns 0 to 2^32 − 1 */
export function crc32cByTable(bytes: Uint8Array, start: number = 0): number {
  const length = bytes.length
  const t = tables
  let crc = -1
  let i = start
  for (; i + 8 <= length; i += 8) {
    crc ^=
      (bytes[i] as number) |
      ((bytes[i + 1] as number) << 8) |
      ((bytes[i + 2] as number) << 16) |
      ((bytes[i + 3] as number) << 24)
    crc =
      (t[1792 + (crc & 0xff)] as number) ^
      (t[1536 + ((crc >>> 8) & 0xff)] as number) ^
      (t[1280 + ((crc >>> 16) & 0xff)] as number) ^
      (t[1024 + (crc >>> 24)] as number) ^
      (t[768 + (bytes[i + 4] as number)] as number) ^
      (t[512 + (bytes[i + 5] as number)] as number) ^
      (t[256 + (bytes[i + 6] as number)] as number) ^
      (t[bytes[i + 7] as number] as number)
  }
  for (; i < length; i++) crc = (crc >>> 8) ^ (t[(crc ^ (bytes[i] as number)) & 0xff] as number)
  return ~crc >>> 0
}

/** Table k tells what a byte does to the checksum k bytes later. */
function makeTables(): Int32Array {
  const made = new Int32Array(8 * 256)
  for (let byte = 0; byte < 256; byte++) {
    let crc = byte
    for (let bit = 0; bit < 8; bit++) crc = (crc & 1) === 1 ? (crc >>> 1) ^ polynomial : crc >>> 1
    made[byte] = crc
  }
  for (let i = 256; i < made.length; i++) {
    const before = made[i - 256] as number
    made[i] = (before >>> 8) ^ (made[before & 0xff] as number)
  }
  return made
}
