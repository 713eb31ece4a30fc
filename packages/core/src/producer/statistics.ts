import type { Clock } from "@millrace/runtime"
import type { Call, Loss } from "./call.ts"

/**
 * What a producer did, as counted in memory (table 1.10 of the options): calls and records, not attempts. Reports, no proof of
 * delivery: a failed call can have stored a part that the confirmed counters leave out.
 */
export interface ProducerStatistics {
  readonly firstActivityMillis?: number
  readonly lastActivityMillis?: number
  readonly lastSuccessMillis?: number
  readonly submittedRecords: number
  readonly submittedPayloadBytes: number
  /** Of calls that succeeded. */
  readonly confirmedRecords: number
  readonly confirmedPayloadBytes: number
  readonly failedCalls: number
  /** Batches that went out again. */
  readonly retries: number
  /** From a call to its confirmation, of calls that succeeded. */
  readonly latency: LatencySummary
}

/** A value is the upper bound of its power-of-two bucket; a percentile is absent where there are too few samples to tell it. */
export interface LatencySummary {
  readonly samples: number
  readonly p50Micros?: number
  /** From 100 samples on. */
  readonly p99Micros?: number
  /** From 1,000 samples on. */
  readonly p999Micros?: number
}

const nothing: Loss = { calls: 0, records: 0, payloadBytes: 0 }

/** Counts for one producer; a snapshot is made on demand. */
export class StatisticsCounter {
  readonly #clock: Clock
  readonly #latency = new LatencyHistogram()
  /** On the monotonic clock: wall time is worked out for a snapshot only. */
  #firstMs = Number.NaN
  #lastMs = Number.NaN
  #successMs: number | undefined
  #submittedRecords = 0
  #submittedBytes = 0
  #confirmedRecords = 0
  #confirmedBytes = 0
  #failedCalls = 0
  #retries = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  submitted(records: number, payloadBytes: number, nowMs: number): void {
    this.#submittedRecords += records
    this.#submittedBytes += payloadBytes
    this.#lastMs = nowMs
    if (this.#submittedRecords === records) this.#firstMs = nowMs
  }

  settled(call: Call, failed: boolean, nowMs: number): void {
    const { calls, records, payloadBytes } = failed ? call.loss : nothing
    this.#failedCalls += calls
    if (failed && records === call.count) return
    this.#confirmedRecords += call.count - records
    this.#confirmedBytes += call.payloadBytes - payloadBytes
    this.#latency.add((nowMs - call.startedMs) * 1000)
    this.#successMs = nowMs
  }

  resent(): void {
    this.#retries++
  }

  snapshot(): ProducerStatistics {
    return {
      ...(Number.isNaN(this.#firstMs) ? {} : { firstActivityMillis: this.#wallMillis(this.#firstMs) }),
      ...(Number.isNaN(this.#lastMs) ? {} : { lastActivityMillis: this.#wallMillis(this.#lastMs) }),
      ...(this.#successMs === undefined ? {} : { lastSuccessMillis: this.#wallMillis(this.#successMs) }),
      submittedRecords: this.#submittedRecords,
      submittedPayloadBytes: this.#submittedBytes,
      confirmedRecords: this.#confirmedRecords,
      confirmedPayloadBytes: this.#confirmedBytes,
      failedCalls: this.#failedCalls,
      retries: this.#retries,
      latency: this.#latency.summary(),
    }
  }

  #wallMillis(monotonicMs: number): number {
    return Math.round(Number(this.#clock.nowMicros() / 1000n) - (this.#clock.monotonicMs() - monotonicMs))
  }
}

const buckets = 64

/** Up to here a bucket is found by counting bits. */
const longestExact = 2 ** 31

class LatencyHistogram {
  readonly #counts = new Float64Array(buckets)
  #samples = 0

  add(micros: number): void {
    const whole = Math.ceil(micros) - 1
    const index =
      whole < 1
        ? 0
        : whole < longestExact
          ? 32 - Math.clz32(whole)
          : Math.min(buckets - 1, Math.ceil(Math.log2(micros)))
    this.#counts[index] = (this.#counts[index] as number) + 1
    this.#samples++
  }

  summary(): LatencySummary {
    const samples = this.#samples
    return {
      samples,
      ...(samples === 0 ? {} : { p50Micros: this.#percentile(0.5) }),
      ...(samples < 100 ? {} : { p99Micros: this.#percentile(0.99) }),
      ...(samples < 1000 ? {} : { p999Micros: this.#percentile(0.999) }),
    }
  }

  #percentile(share: number): number {
    const wanted = Math.ceil(this.#samples * share)
    let seen = 0
    for (let bucket = 0; bucket < buckets; bucket++) {
      seen += this.#counts[bucket] as number
      if (seen >= wanted) return 2 ** bucket
    }
    return 2 ** (buckets - 1)
  }
}
