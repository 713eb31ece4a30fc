/** The reference of a scan: the same bytes out of one file, in pieces. */
import { open } from "node:fs/promises"
import type { Arm } from "../pairs.ts"
import { perSecond, timed } from "../stopwatch.ts"

const pieceBytes = 1 << 20

/** Reads a file from its beginning to its end and answers how many bytes it saw; one byte of each piece is looked at. */
export async function scanFile(path: string): Promise<number> {
  const file = await open(path, "r")
  try {
    const piece = new Uint8Array(pieceBytes)
    let bytes = 0
    let seen = 0
    for (;;) {
      const { bytesRead } = await file.read(piece, 0, pieceBytes, null)
      if (bytesRead === 0) break
      bytes += bytesRead
      seen += piece[bytesRead - 1] as number
    }
    if (seen < 0) throw new Error("unreachable: the sum of bytes is never negative")
    return bytes
  } finally {
    await file.close()
  }
}

/** An arm that reads all of something; the warm-up does too, since a scan has no smaller form. It fails when the bytes are not all there. */
export function scanArm(
  name: string,
  of: { readonly count: number; readonly recordBytes: number },
  read: () => Promise<number>,
): Arm {
  return {
    name,
    async measure() {
      let bytes = 0
      const { ms, cpuMicros } = await timed(async () => {
        bytes = await read()
      })
      if (bytes !== of.count * of.recordBytes) {
        throw new Error(`${name}: ${bytes} bytes read of ${of.count * of.recordBytes}`)
      }
      return { value: perSecond(of.count, ms), cpuMicrosPerRecord: cpuMicros / of.count }
    },
  }
}

/** An arm that reads the same bytes from a file. */
export function fileScanArm(file: string, of: { readonly count: number; readonly recordBytes: number }): Arm {
  return scanArm("file", of, () => scanFile(file))
}
