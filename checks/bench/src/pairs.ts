/** Arms that are measured in turns, so that what the machine does meanwhile falls on all of them alike. */
import { median, type Spread, spread } from "./quantile.ts"
import type { Row } from "./row.ts"
import type { Scratch } from "./scratch.ts"

/** What one measurement of one arm answers. */
interface Sample {
  readonly value: number
  readonly cpuMicrosPerRecord?: number
  /** Further figures by name; medians of them become peers. */
  readonly figures?: Readonly<Record<string, number>>
}

export interface Arm {
  readonly name: string
  /**
   * Measures once in an empty directory.
   * @param share which part of the full load to run, above 0 and at most 1; the warm-up runs a tenth.
   */
  measure(directory: string, share: number): Promise<Sample>
}

/** All that was measured of one arm. */
export interface Series {
  readonly median: number
  readonly spread: Spread
  readonly values: readonly number[]
  readonly cpuMicrosPerRecord: number | null
  readonly figures: Readonly<Record<string, number>>
}

/**
 * Runs every arm once as a warm-up that does not count, then all arms in order, `rounds` times. Answers one series an arm, in order.
 * The order turns around every other round, so that no arm always runs behind the same one.
 */
export async function interleave(arms: readonly Arm[], rounds: number, scratch: Scratch): Promise<Series[]> {
  for (const arm of arms) await scratch.within((directory) => arm.measure(directory, 0.1))
  const samples: Sample[][] = arms.map(() => [])
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? arms.keys() : [...arms.keys()].reverse()
    for (const index of order) {
      const sample = await scratch.within((directory) => (arms[index] as Arm).measure(directory, 1))
      samples[index]?.push(sample)
    }
  }
  return samples.map(toSeries)
}

/** `ours / reference` of each round. */
function pairRatios(ours: Series, reference: Series): number[] {
  return ours.values.map((value, round) => value / (reference.values[round] as number))
}

function toSeries(samples: readonly Sample[]): Series {
  const values = samples.map((sample) => sample.value)
  const cpu = samples.flatMap((sample) => sample.cpuMicrosPerRecord ?? [])
  const names = new Set(samples.flatMap((sample) => Object.keys(sample.figures ?? {})))
  const figures: Record<string, number> = {}
  for (const name of names) figures[name] = median(samples.flatMap((sample) => sample.figures?.[name] ?? []))
  return {
    median: median(values),
    spread: spread(values),
    values,
    cpuMicrosPerRecord: cpu.length === 0 ? null : median(cpu),
    figures,
  }
}

/** What a row says beside the two series. */
export interface RowText extends Pick<Row, "id" | "unit" | "better" | "referenceName" | "method"> {
  readonly peers: Row["peers"]
  readonly targets: Row["targets"]
}

/** The row of a pair of series. */
export function pairRow(ours: Series, reference: Series, text: RowText): Row {
  return {
    id: text.id,
    unit: text.unit,
    better: text.better,
    ours: ours.median,
    reference: reference.median,
    referenceName: text.referenceName,
    ratio: ours.median / reference.median,
    peers: text.peers,
    cpuMicrosPerRecord: ours.cpuMicrosPerRecord,
    spread: { ours: ours.spread, reference: reference.spread, ratio: spread(pairRatios(ours, reference)) },
    targets: text.targets,
    method: text.method,
  }
}
