/** Wall and CPU time of a piece of work. */
import { systemClock } from "@millrace/runtime"

export interface Elapsed {
  readonly ms: number
  /** User and system time of the whole process, worker threads included. */
  readonly cpuMicros: number
}

/** Runs `work` and says how long it took. */
export async function timed(work: () => Promise<void> | void): Promise<Elapsed> {
  const cpu = process.cpuUsage()
  const start = systemClock.monotonicMs()
  await work()
  const ms = systemClock.monotonicMs() - start
  const used = process.cpuUsage(cpu)
  return { ms, cpuMicros: used.user + used.system }
}

/** What `count` of something in `ms` is in a second. */
export function perSecond(count: number, ms: number): number {
  return (count / ms) * 1000
}
