/** How producer statistics are reported (table 1.10 of the options). Checked and in range. */
export interface StatisticsSettings {
  /** From one report to the next, 1,000 to 60,000 ms. */
  readonly intervalMs: number
  /** How many live producers a report tells of, 1 to 32; the newest are left out. */
  readonly maxProducers: number
}

/** The range and the default of the interval, in ms. */
const shortestIntervalMs = 1000
export const largestIntervalMs: number = 60_000
export const defaultIntervalMs: number = 10_000

/** The default, and the maximum. */
const mostProducers = 32

/** A report expires after so many intervals. */
export const expiryIntervals: number = 3

/**
 * The settings from texts, as `MILLRACE_PRODUCER_TELEMETRY_INTERVAL_MS` and `…_MAX_PRODUCERS` give them. A number out of range is
 * clamped to it; what is no whole number counts as the default. Nothing is refused: reports must keep no program from starting.
 * @returns `undefined` when the interval is 0, which turns reports off
 */
export function readStatisticsSettings(texts: {
  readonly intervalMs: string | undefined
  readonly maxProducers: string | undefined
}): StatisticsSettings | undefined {
  const interval = wholeNumber(texts.intervalMs) ?? defaultIntervalMs
  if (interval === 0) return undefined
  return {
    intervalMs: Math.min(largestIntervalMs, Math.max(shortestIntervalMs, interval)),
    maxProducers: Math.min(mostProducers, Math.max(1, wholeNumber(texts.maxProducers) ?? mostProducers)),
  }
}

function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined
}
