/**
 * CRC-32C (Castagnoli polynomial; RFC 3720, appendix B.4), which covers record batches. Native where `@node-rs/crc32` could be
 * installed (4 GB/s), otherwise by table, eight bytes a step (1 GB/s, so 0.1 µs for a record of 100 bytes).
 */
import { createRequire } from "node:module"
import { crc32cByTable } from "./checksum-table.ts"

/** Of the bytes from `start` on (default 0). @returns 0 to 2^32 − 1 */
type Checksum = (bytes: Uint8Array, start?: number) => number

/** Below so many bytes the table is quicker than a call of native code. */
const nativeFromBytes = 256

/** The checksum by the quickest way there is. */
export const crc32c: Checksum = choose()

function choose(): Checksum {
  const native = nativeChecksum()
  if (native === undefined) return crc32cByTable
  return (bytes, start = 0) =>
    bytes.length - start < nativeFromBytes ? crc32cByTable(bytes, start) : native(bytes.subarray(start))
}

/** The package is optional: without it, or where its binary does not load, the table does. */
function nativeChecksum(): ((bytes: Uint8Array) => number) | undefined {
  try {
    const native = createRequire(import.meta.url)("@node-rs/crc32") as {
      readonly crc32c: (bytes: Uint8Array) => number
    }
    return native.crc32c(new TextEncoder().encode("123456789")) === 0xe3069283 ? native.crc32c : undefined
  } catch {
    return undefined
  }
}
