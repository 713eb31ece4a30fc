import { InvalidError } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import { checkSpoolOptions, type SpoolOptions, type SpoolSettings } from "../spool/spool-options.ts"
import type { FailureMode } from "./buffer-budget.ts"
import type { PublishFailedError } from "./publish-failed.ts"

/** Settings of a background producer (seed 000, "Background producers"; table 1.3 of the options). */
export interface BackgroundOptions {
  /** Lanes that sends are written from. Default 1. */
  readonly shards?: number
  /**
   * `ordered` (default): all sends to one topic take one lane, so that each partition has them in the order of the calls. `balanced`:
   * sends take the lanes in turn, each with requests of its own under way, and their order is lost.
   */
  readonly sharding?: "ordered" | "balanced"
  /** A lane is flushed at this many sends. Default 1,000; 0: no such trigger. */
  readonly batchLength?: number
  /** A lane is flushed at this many bytes, and no request is larger. Default 1 MiB; 0: no such trigger. */
  readonly batchBytes?: number
  /**
   * A lane is flushed so long after a send found it empty, in ms. Default 1; 0: at once, with the other sends of the same turn. Nothing
   * lingers while a send waits for room.
   */
  readonly lingerMs?: number
  /** Bytes that may be queued and under way together. Default 32 MiB; 0: no limit. A send above it is refused always. */
  readonly maxBufferBytes?: number
  /** Requests of one partition and lane under way at once; the backend's own number holds besides. Default 1; 0: the backend's. */
  readonly maxInFlight?: number
  /** What a send does that finds the buffer full: waits (`block`, the default), waits for `blockTimeoutMs`, or fails at once. */
  readonly failureMode?: FailureMode
  /** Of `blockWithTimeout`, in ms; required there, and refused otherwise. */
  readonly blockTimeoutMs?: number
  /**
   * Takes what could not be delivered, one failure at a time; a promise is awaited. Without it, and when it throws, failures are kept
   * for `shutdown()`, which then rejects with one `PublishFailedError`; so are those that it is too slow for at a shutdown's deadline.
   */
  readonly onError?: (error: PublishFailedError) => void | Promise<void>
  /**
   * Keeps accepted records in a directory until the backend has them: see `SpoolOptions`; a text is the directory. A send then settles
   * when its record is synced there, and retries have no end. There is one lane a topic, and nothing lingers: `batchLength`
   * (default here: no limit), `batchBytes` and `maxInFlight` (default here: the backend's) only bound the requests. Default: none.
   */
  readonly spool?: string | SpoolOptions
}

/** Background options after the checks. */
export interface BackgroundSettings {
  readonly shards: number
  readonly sharding: "ordered" | "balanced"
  /** Infinite: no trigger. */
  readonly batchLength: number
  readonly batchBytes: number
  readonly lingerMs: number
  readonly maxBufferBytes: number
  readonly maxInFlight: number
  readonly failureMode: FailureMode
  readonly blockTimeoutMs: number
  readonly onError: BackgroundOptions["onError"]
  /** Absent: accepted records are in memory. */
  readonly spool: SpoolSettings | undefined
}

/** No more lanes than this: each has requests, and on some backends an identity, of its own. */
const mostShards = 64

const known: readonly (keyof BackgroundOptions)[] = [
  "shards",
  "sharding",
  "batchLength",
  "batchBytes",
  "lingerMs",
  "maxBufferBytes",
  "maxInFlight",
  "failureMode",
  "blockTimeoutMs",
  "onError",
  "spool",
]

/** @throws InvalidError for unknown keys, values out of range and contradictions */
export function checkBackgroundOptions(owner: string, given: true | BackgroundOptions): BackgroundSettings {
  const options = (given as unknown) === true ? {} : (given as BackgroundOptions)
  const what = `background of the ${owner}`
  const read = new OptionReader<BackgroundOptions>(what, options, known)
  const failureMode = read.choice("failureMode", ["block", "blockWithTimeout", "failImmediately"], "block")
  const blockTimeoutMs = read.duration("blockTimeoutMs", { fallback: undefined })
  if ((blockTimeoutMs === undefined) === (failureMode === "blockWithTimeout")) {
    throw new InvalidError(
      blockTimeoutMs === undefined
        ? `${what}: failureMode "blockWithTimeout" needs blockTimeoutMs, the longest wait of a send in ms`
        : `${what}: blockTimeoutMs is for failureMode "blockWithTimeout", not for ${shown(failureMode)}`,
    )
  }
  const spool = options.spool === undefined ? undefined : checkSpoolOptions(owner, options.spool)
  if (spool !== undefined && ((options.shards ?? 1) !== 1 || options.sharding === "balanced")) {
    throw new InvalidError(`${what}: a spool has one lane a topic: leave shards and sharding out`)
  }
  return {
    shards: read.whole("shards", { min: 1, max: mostShards, fallback: 1 }),
    sharding: read.choice("sharding", ["ordered", "balanced"], "ordered"),
    batchLength: unlimitedAtZero(read.whole("batchLength", { min: 0, fallback: spool === undefined ? 1000 : 0 })),
    batchBytes: unlimitedAtZero(read.whole("batchBytes", { min: 0, fallback: 1 << 20 })),
    lingerMs: read.duration("lingerMs", { zero: true, fallback: 1 }),
    maxBufferBytes: read.whole("maxBufferBytes", { min: 0, max: Number.MAX_SAFE_INTEGER, fallback: 32 << 20 }),
    maxInFlight: unlimitedAtZero(read.whole("maxInFlight", { min: 0, fallback: spool === undefined ? 1 : 0 })),
    failureMode,
    blockTimeoutMs: blockTimeoutMs ?? 0,
    onError: read.callback("onError"),
    spool,
  }
}

function unlimitedAtZero(value: number): number {
  return value === 0 ? Number.POSITIVE_INFINITY : value
}
