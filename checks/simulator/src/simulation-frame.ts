/** What the simulations of programs that read, take, transact and register have in common around what they are about. */
import { Chance } from "./chance.ts"
import { type ReadingWeather, readingWeatherOf } from "./reading/reading-plan.ts"
import { SimClock } from "./sim-clock.ts"
import type { SimProgram } from "./sim-program.ts"
import type { SimulationOptions, SimulationResult } from "./simulation.ts"
import { Trace } from "./trace.ts"
import { observed } from "./unobserved.ts"
import type { Violation } from "./workload/world.ts"

/** What one seed decides, from its first event to its last. */
export interface SimulatedLife {
  /** How much programs have done: what the part counts as calls. */
  readonly calls: number
  /** How many records there were. */
  readonly records: number
  run(): Promise<void>
}

/** The clock, the trace, the weather and the list of broken promises of one seed. */
export class SimulationFrame {
  readonly seed: number
  readonly clock: SimClock
  readonly trace: Trace
  /** The chance of the script: each other one of a part has a stream of its own. */
  readonly chance: Chance
  readonly weather: ReadingWeather
  readonly #found: Violation[] = []

  /** @param stream The stream of the seed that the script and its weather are drawn from. */
  constructor(seed: number, stream: number, options: SimulationOptions) {
    this.seed = seed
    this.clock = new SimClock()
    this.trace = new Trace(this.clock, options.trace ?? false)
    this.chance = new Chance(seed, stream)
    this.weather = readingWeatherOf(this.chance)
  }

  /** A promise is broken. */
  readonly violate = (invariant: string, text: string): void => {
    this.#found.push({ invariant, text })
    this.trace.note("world", `VIOLATION ${invariant}: ${text}`)
  }

  /** Something about a program, for the trace. */
  readonly note = (program: SimProgram, text: string): void => {
    if (this.trace.isOn) this.trace.note(`p${program.id}`, text)
  }

  /** Time between two steps of a script: often none, seldom many seconds. */
  async pass(): Promise<void> {
    const { chance } = this
    await this.clock.advance(
      chance.weighted([
        [3, 0],
        [4, chance.between(1, 50)],
        [3, chance.between(50, 1500)],
        [1, chance.between(1500, 15_000)],
      ]),
    )
  }

  /** Runs it. It never rejects; what breaks a promise, an error that nobody observes among it, is in `violations`. */
  async run(life: SimulatedLife): Promise<SimulationResult> {
    await observed(this.violate, () => life.run())
    const { calls, records } = life
    return { seed: this.seed, violations: this.#found, trace: this.trace.lines, calls, records }
  }
}
