/** What must hold of a group's progress after a crash. Pure: a list of problems. */
import type { Stored } from "./log-checker.ts"

/** What one life of a consumer reported as handled, in the order in which it did. */
export type Handled = readonly Stored[]

/** The next offset to read, by partition, as the store has it. */
export type Progress = ReadonlyMap<number, bigint>

const mostProblems = 20

/**
 * - Nothing is committed that nobody handled: every offset below the stored one was reported.
 * - A life hands over each partition in order, without a gap, beginning at or before what was stored when it began.
 * - What was handed over is what the log has there.
 */
export function checkProgress(
  lives: readonly { readonly handled: Handled; readonly before: Progress }[],
  stored: Progress,
  log: Iterable<Stored>,
): string[] {
  const problems: string[] = []
  const content = new Map<string, Stored>()
  for (const record of log) content.set(`${record.partition}/${record.offset}`, record)

  const everHandled = new Set<string>()
  for (const [index, life] of lives.entries()) {
    const next = new Map<number, bigint>()
    for (const record of life.handled) {
      const place = `${record.partition}/${record.offset}`
      everHandled.add(place)
      const due = next.get(record.partition)
      const latest = life.before.get(record.partition) ?? 0n
      if (due === undefined ? record.offset > latest : record.offset !== due) {
        problems.push(`life ${index}: ${place} was handed over where ${due ?? `at most ${latest}`} was due`)
      }
      next.set(record.partition, record.offset + 1n)
      const there = content.get(place)
      if (there?.lane !== record.lane || there.counter !== record.counter) {
        problems.push(
          `life ${index}: ${place} was handed over as ${record.lane}:${record.counter}, which the log has not`,
        )
      }
    }
  }
  for (const [partition, offset] of stored) {
    for (let below = 0n; below < offset; below++) {
      if (everHandled.has(`${partition}/${below}`)) continue
      problems.push(`partition ${partition} is committed up to ${offset}, but ${below} was never handled`)
      break
    }
  }
  return problems.slice(0, mostProblems)
}
