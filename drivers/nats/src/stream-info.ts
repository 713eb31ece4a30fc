/** What this driver reads and writes of JetStream's stream configuration and information (JSON of the `$JS.API`; durations in ns). */

/** The configuration of a JetStream stream. Fields that are not named here are kept as they are on an update. */
export interface StreamConfig {
  readonly name: string
  readonly subjects?: readonly string[]
  readonly retention?: "limits" | "interest" | "workqueue"
  readonly storage?: "file" | "memory"
  readonly discard?: "old" | "new"
  /** ns; 0 is no limit. */
  readonly max_age?: number
  /** −1 is no limit. */
  readonly max_bytes?: number
  readonly max_msg_size?: number
  /** ns. */
  readonly duplicate_window?: number
  readonly num_replicas?: number
  readonly allow_direct?: boolean
  readonly allow_atomic?: boolean
  readonly allow_batched?: boolean
  readonly metadata?: Readonly<Record<string, string>>
  readonly [field: string]: unknown
}

/** The answer of `$JS.API.STREAM.INFO`. */
export interface StreamInfo {
  readonly config: StreamConfig
  /** RFC 3339, up to nanoseconds. */
  readonly created: string
  /** The server's time of the answer. */
  readonly ts?: string
  readonly state: {
    readonly messages: number
    readonly bytes: number
    readonly first_seq: number
    readonly last_seq: number
    readonly num_deleted?: number
    readonly consumer_count: number
  }
  readonly cluster?: { readonly leader?: string }
}

/** Microseconds since 1970 of an RFC 3339 time with up to nine digits of a second; what is below a microsecond is cut off. */
export function microsOf(time: string): bigint {
  const match = /^(.*?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$/.exec(time)
  const seconds = match === null ? Number.NaN : Date.parse(`${match[1]}${match[3]}`)
  if (match === null || Number.isNaN(seconds)) return 0n
  return BigInt(seconds) * 1000n + BigInt((match[2] ?? "").slice(0, 6).padEnd(6, "0"))
}

/** An RFC 3339 time of microseconds since 1970, within the years that JetStream can tell (1970 to 2262). */
export function timeOf(micros: bigint): string {
  const bounded = micros < 0n ? 0n : micros > latestMicros ? latestMicros : micros
  const text = new Date(Number(bounded / 1_000_000n) * 1000).toISOString()
  return `${text.slice(0, 19)}.${(bounded % 1_000_000n).toString().padStart(6, "0")}Z`
}

/** The last whole second of a 64-bit count of nanoseconds. */
const latestMicros = 9_223_372_036n * 1_000_000n
