import type { Clock } from "@millrace/runtime"
import type { SendCall } from "./send-call.ts"

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

/** Counts for one producer; a snapshot is made on demand. */
export class StatisticsCounter {
  readonly #clock: Clock
  readonly #latency = new LatencyHistogram()
  /** On the monotonic clock: wall time is worked out for a snapshot only. */
  #firstMs: number | undefined
  #lastMs: number | undefined
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

  submitted(call: SendCall): void {
    this.#submittedRecords += call.count
    this.#submittedBytes += call.payloadBytes
    this.#lastMs = call.startedMs
    this.#firstMs ??= call.startedMs
  }

  settled(call: SendCall, failed: boolean, nowMs: number): void {
    if (failed) {
      this.#failedCalls++
      return
    }
    this.#confirmedRecords += call.count
    this.#confirmedBytes += call.payloadBytes
    this.#latency.add((nowMs - call.startedMs) * 1000)
    this.#successMs = nowMs
  }

  resent(): void {
    this.#retries++
  }

  snapshot(): ProducerStatistics {
    return {
      ...(this.#firstMs === undefined ? {} : { firstActivityMillis: this.#wallMillis(this.#firstMs) }),
      ...(this.#lastMs === undefined ? {} : { lastActivityMillis: this.#wallMillis(this.#lastMs) }),
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

class LatencyHistogram {
  readonly #counts = new Float64Array(buckets)
  #samples = 0

  add(micros: number): void {
    const bucket = micros <= 1 ? 0 : Math.ceil(Math.log2(micros))
    const index = Math.min(buckets - 1, bucket)
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
