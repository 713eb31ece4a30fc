/** What must hold of a reader that was killed over and over, by its kind. Pure: a list of problems. */
import type { Stored } from "./log-checker.ts"
import type { Handled, Progress } from "./progress-checker.ts"

/** A life of a reader: what it reported as handled, in that order, and what was stored when it began. */
export interface Life {
  readonly handled: Handled
  readonly before: Progress
}

export interface Readings {
  readonly lives: readonly Life[]
  /** The next offset to read of each partition, as the backend has it in the end. */
  readonly stored: Progress
  readonly log: readonly Stored[]
  /** Whether the reader wants a record. */
  readonly wants: (record: Stored) => boolean
  /** What of a lane comes in the order of its counter, at least: everything of a partition, or only what has one key. */
  readonly order: "partition" | "key" | "none"
}

const mostProblems = 20

/**
 * At least once: nothing is stored as handled that nobody handled and that is wanted; what was stored when a life began does not come to it,
 * nor what is not wanted; a life handles a record once, in order, and as it is in the log.
 */
export function checkAtLeastOnce(readings: Readings): string[] {
  const { lives, stored, log, wants } = readings
  const problems = checkLives(readings)
  const handled = new Set(lives.flatMap((life) => life.handled.map(placeOf)))
  for (const record of log) {
    const next = stored.get(record.partition) ?? 0n
    if (record.offset >= next || !wants(record) || handled.has(placeOf(record))) continue
    problems.push(`partition ${record.partition} is stored up to ${next}, but ${record.offset} was never handled`)
  }
  return problems.slice(0, mostProblems)
}

/** At most once: no record came to two lives, and each life lost no more than it may have read ahead. */
export function checkAtMostOnce(readings: Readings, { mostLost }: { readonly mostLost: number }): string[] {
  const { lives, stored, log } = readings
  const problems = checkLives(readings)
  const lifeOf = new Map<string, number>()
  for (const [index, life] of lives.entries()) {
    for (const record of life.handled) {
      const earlier = lifeOf.get(placeOf(record))
      if (earlier !== undefined && earlier !== index)
        problems.push(`${placeOf(record)} came to lives ${earlier} and ${index}`)
      lifeOf.set(placeOf(record), index)
    }
  }
  for (const [index, life] of lives.entries()) {
    const after = lives[index + 1]?.before ?? stored
    const lost = log.filter(
      (record) =>
        record.offset >= (life.before.get(record.partition) ?? 0n) &&
        record.offset < (after.get(record.partition) ?? 0n) &&
        !lifeOf.has(placeOf(record)),
    )
    if (lost.length > mostLost) problems.push(`life ${index} lost ${lost.length} records, more than ${mostLost}`)
  }
  return problems.slice(0, mostProblems)
}

function checkLives({ lives, log, wants, order }: Readings): string[] {
  const problems: string[] = []
  const content = new Map(log.map((record) => [placeOf(record), record]))
  for (const [index, life] of lives.entries()) {
    const seen = new Set<string>()
    const last = new Map<string, bigint>()
    for (const record of life.handled) {
      const place = placeOf(record)
      const there = content.get(place)
      if (there?.lane !== record.lane || there.counter !== record.counter) {
        problems.push(`life ${index}: ${place} is ${record.lane}:${record.counter}, which the log has not`)
      }
      if (record.offset < (life.before.get(record.partition) ?? 0n)) {
        problems.push(`life ${index}: ${place} came, though ${life.before.get(record.partition)} was stored before`)
      }
      if (!wants(record)) problems.push(`life ${index}: ${place} came, which nobody wants`)
      if (seen.has(place)) problems.push(`life ${index}: ${place} came twice`)
      seen.add(place)
      if (order === "none") continue
      const row = order === "partition" ? `${record.partition}` : `${record.partition}/${record.lane}`
      const before = last.get(row)
      if (before !== undefined && record.offset < before) problems.push(`life ${index}: ${place} came behind ${before}`)
      last.set(row, record.offset)
    }
  }
  return problems
}

function placeOf({ partition, offset }: Stored): string {
  return `${partition}/${offset}`
}
