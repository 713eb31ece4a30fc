/** Ways in which the files of a store get damaged. */
import type { Random } from "@millrace/runtime"

/** One damage, done to the bytes of a file. */
export interface Damage {
  readonly name: string
  /** Answers the damaged bytes, and leaves the given ones alone. */
  damage(bytes: Uint8Array): Uint8Array
}

/** The pages of a file, behind a header: `[start, end)` of each, the last one perhaps short. */
export function pagesOf(bytes: number, page: number, header: number = 0): [number, number][] {
  const pages: [number, number][] = []
  for (let start = header; start < bytes; start += page) pages.push([start, Math.min(bytes, start + page)])
  return pages
}

/** The header of a write-ahead log, and of each page in it (SQLite's "WAL Format"). */
const walHeaderBytes = 32
const frameHeaderBytes = 24

/**
 * The pages of a write-ahead log that count: `[start, end)` of each with its header. Those behind them are left over from before the log
 * began anew, and carry other salts.
 */
export function liveFramesOf(wal: Uint8Array, page: number): [number, number][] {
  const salts = Buffer.from(wal.subarray(16, 24))
  const frames = pagesOf(wal.length, frameHeaderBytes + page, walHeaderBytes)
  const stale = frames.findIndex(([start]) => !salts.equals(wal.subarray(start + 8, start + 16)))
  return stale === -1 ? frames : frames.slice(0, stale)
}

/** Everything that can happen to one page: the file ends there, it is zero, it is noise, another page is in its place. */
export function damagesOfPage(pages: readonly [number, number][], index: number, random: Random): Damage[] {
  const [start, end] = pages[index] as [number, number]
  const other = pages[(index + 1 + (random.uint32() % Math.max(1, pages.length - 1))) % pages.length] as [
    number,
    number,
  ]
  return [
    cutAt(start),
    { name: `page ${index} is zero`, damage: (bytes) => bytes.slice().fill(0, start, end) },
    {
      name: `page ${index} is noise`,
      damage: (bytes) => {
        const damaged = bytes.slice()
        for (let at = start; at < end; at += 1) damaged[at] = random.uint32()
        return damaged
      },
    },
    {
      name: `page ${index} has changed places with the one at ${other[0]}`,
      damage: (bytes) => {
        const damaged = bytes.slice()
        const length = Math.min(end - start, other[1] - other[0])
        damaged.set(bytes.subarray(other[0], other[0] + length), start)
        damaged.set(bytes.subarray(start, start + length), other[0])
        return damaged
      },
    },
    {
      name: `one bit of page ${index} is flipped`,
      damage: (bytes) => {
        const damaged = bytes.slice()
        const at = start + (random.uint32() % (end - start))
        damaged[at] = (damaged[at] as number) ^ (1 << (random.uint32() % 8))
        return damaged
      },
    },
  ]
}

/** The file ends at a byte. */
export function cutAt(at: number): Damage {
  return { name: `the file ends at byte ${at}`, damage: (bytes) => bytes.slice(0, at) }
}

/** The file is zero from a byte on. */
export function zeroFrom(at: number): Damage {
  return { name: `the file is zero from byte ${at} on`, damage: (bytes) => bytes.slice().fill(0, at) }
}
