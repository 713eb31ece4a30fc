import { DecodeError } from "@millrace/contract"

/** The error for decompressed bytes that would be more than the limit. */
export function tooLong(codec: "gzip" | "snappy" | "lz4" | "zstd", limitBytes: number): DecodeError {
  return new DecodeError(
    `${codec}: the decompressed bytes are more than ${limitBytes}, which is the most that is allowed`,
  )
}
