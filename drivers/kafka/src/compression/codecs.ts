/**
 * What the records of a batch can be compressed with (Kafka documentation, "Record Batch", attributes 0 to 2). gzip and zstd are
 * Node's; snappy and lz4 are written here.
 */
import { gunzipSync, gzipSync, zstdCompressSync, zstdDecompressSync } from "node:zlib"
import { DecodeError, UnsupportedError } from "@millrace/contract"
import { lz4Frame, readLz4Frame } from "./lz4-frame.ts"
import { readSnappy, xerialSnappy } from "./snappy-stream.ts"
import { tooLong } from "./too-long.ts"

export type CodecName = "none" | "gzip" | "snappy" | "lz4" | "zstd"

/** The codecs as they stand in a batch's attributes. */
export const codecCodes: Readonly<Record<CodecName, number>> = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }

/**
 * The most bytes that one batch may have when it is decompressed: what a hostile or broken batch can make this process hold. Brokers
 * take batches of 1 MiB unless they are set up otherwise.
 */
const longestDecompressedBytes: number = 128 << 20

/** Compresses the records of a batch. `gzip` and `zstd` at their usual levels. */
export function compress(codec: CodecName, bytes: Uint8Array): Uint8Array {
  switch (codec) {
    case "none":
      return bytes
    case "gzip":
      return gzipSync(bytes)
    case "snappy":
      return xerialSnappy(bytes)
    case "lz4":
      return lz4Frame(bytes)
    case "zstd":
      return zstdCompressSync(bytes)
  }
}

/**
 * The records of a batch again.
 * @param code From the batch's attributes.
 * @throws UnsupportedError for a code that no codec has; DecodeError when the bytes are not what the codec writes, or would be more
 *   than `limitBytes` (default: `longestDecompressedBytes`)
 */
export function decompress(code: number, bytes: Uint8Array, limitBytes: number = longestDecompressedBytes): Buffer {
  switch (code) {
    case codecCodes.gzip:
      return byNode("gzip", limitBytes, (options) => gunzipSync(bytes, options))
    case codecCodes.snappy:
      return readSnappy(bytes, limitBytes)
    case codecCodes.lz4:
      return readLz4Frame(bytes, limitBytes)
    case codecCodes.zstd:
      return byNode("zstd", limitBytes, (options) => zstdDecompressSync(bytes, options))
    default:
      throw new UnsupportedError(
        `compression codec ${code} is not known: ${Object.keys(codecCodes).join(", ")} (0 to 4) are`,
      )
  }
}

function byNode(
  codec: "gzip" | "zstd",
  limitBytes: number,
  run: (options: { readonly maxOutputLength: number }) => Buffer,
): Buffer {
  try {
    // Node takes no 0 here.
    return run({ maxOutputLength: Math.max(1, limitBytes) })
  } catch (cause) {
    if ((cause as { readonly code?: unknown }).code === "ERR_BUFFER_TOO_LARGE") throw tooLong(codec, limitBytes)
    throw new DecodeError(`${codec}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause })
  }
}
