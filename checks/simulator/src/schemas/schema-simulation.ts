/** One simulated life of programs that register schemas in a backend's small state, all of it decided by one seed. */
import { FaultyBackend } from "../backend/faulty-backend.ts"
import { manifestOf } from "../backend/manifests.ts"
import { Chance } from "../chance.ts"
import { ReadingPlan, type ReadingWeather, readingWeatherOf } from "../reading/reading-plan.ts"
import { Calls } from "../sim-calls.ts"
import { SimClock } from "../sim-clock.ts"
import { SimProgram } from "../sim-program.ts"
import type { SimulationOptions, SimulationResult } from "../simulation.ts"
import { Trace } from "../trace.ts"
import { observed } from "../unobserved.ts"
import type { Violation } from "../workload/world.ts"
import { SchemaActor, type SchemaStage } from "./schema-actor.ts"
import { SchemaBook, subjects } from "./schema-book.ts"

/** Within so long every call settles, in ms. */
const endMs = 600_000

/** Runs one seed. It never rejects; what breaks a promise is in `violations`. One at a time in a process. */
export async function simulateSchemas(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const clock = new SimClock()
  const trace = new Trace(clock, options.trace ?? false)
  const found: Violation[] = []
  const violate = (invariant: string, text: string): void => {
    found.push({ invariant, text })
    trace.note("world", `VIOLATION ${invariant}: ${text}`)
  }
  const simulation = new SchemaSimulation(seed, { clock, trace, violate })
  await observed(violate, () => simulation.run())
  return { seed, violations: found, trace: trace.lines, calls: simulation.calls, records: 0 }
}

class SchemaSimulation {
  readonly #seed: number
  readonly #clock: SimClock
  readonly #trace: Trace
  readonly #violate: (invariant: string, text: string) => void
  readonly #chance: Chance
  readonly #weather: ReadingWeather
  readonly #plan: ReadingPlan
  readonly #backend: FaultyBackend
  readonly #stage: SchemaStage
  readonly #actors: SchemaActor[] = []

  constructor(
    seed: number,
    world: { readonly clock: SimClock; readonly trace: Trace; readonly violate: (name: string, text: string) => void },
  ) {
    const { clock, trace, violate } = world
    const chance = new Chance(seed, 40)
    this.#seed = seed
    this.#clock = clock
    this.#trace = trace
    this.#violate = violate
    this.#chance = chance
    this.#weather = readingWeatherOf(chance)
    this.#plan = new ReadingPlan(new Chance(seed, 41), this.#weather)
    this.#backend = new FaultyBackend({ clock, manifest: manifestOf("sequence", { state: true }), faults: this.#plan })
    const note = (program: SimProgram, text: string): void => {
      if (trace.isOn) trace.note(`p${program.id}`, text)
    }
    this.#stage = { book: new SchemaBook(violate), calls: new Calls({ note, violate }), note }
  }

  /** Registrations that were asked for. */
  get calls(): number {
    return this.#stage.book.registrations.length
  }

  async run(): Promise<void> {
    this.#trace.note("world", `seed ${this.#seed}: weather ${JSON.stringify(this.#weather)}`)
    await this.#script()
    this.#trace.note("world", "calm")
    this.#plan.isOver = true
    this.#backend.restore()
    await this.#finish(() => this.#actors.every(({ isOver, program }) => isOver || !program.isAlive))
    for (const { program } of this.#actors) this.#checkLeft(program)
    const last = this.#start()
    last.isOver = true
    await this.#within(() => this.#lookAtLast(last))
    for (const actor of this.#actors) if (actor.program.isAlive) await this.#within(() => actor.end(endMs))
  }

  async #script(): Promise<void> {
    const chance = this.#chance
    for (let steps = chance.between(2, 10); steps > 0; steps--) {
      const living = this.#actors.filter(({ isOver, program }) => !isOver && program.isAlive)
      if (living.length < 3) void this.#start().live()
      const actor = living.length === 0 ? undefined : chance.of(living)
      if (actor !== undefined && chance.happens(this.#weather.accidents)) this.#accident(actor)
      if (chance.happens(this.#weather.events)) this.#outage(chance.of([chance.between(1, 3000), 60_000]))
      await this.#clock.advance(chance.of([0, chance.below(50), chance.below(3000)]))
    }
  }

  #start(): SchemaActor {
    const { clock, backend, seed } = { clock: this.#clock, backend: this.#backend, seed: this.#seed }
    const actor = new SchemaActor(new SimProgram(this.#actors.length, { clock, backend, seed }), this.#stage)
    this.#actors.push(actor)
    return actor
  }

  #accident(actor: SchemaActor): void {
    const chance = this.#chance
    const { program } = actor
    const what = chance.of(["kill", "stall", "end"] as const)
    this.#stage.note(program, what)
    if (what === "kill") program.kill()
    else if (what === "stall") program.stall(chance.of([100, 30_000]))
    else actor.end(chance.of([0, 100, 60_000])).catch((error: unknown) => this.#violate("programs run", String(error)))
  }

  #outage(ms: number): void {
    if (this.#backend.isDown) return
    this.#trace.note("backend", `is down for ${ms} ms`)
    this.#backend.cut()
    this.#clock.setTimer(ms, () => this.#backend.restore())
  }

  /** All is well: what there is can be registered again, and is what was told. */
  async #lookAtLast(last: SchemaActor): Promise<void> {
    for (const subject of subjects) {
      for (const number of new Set(this.#stage.book.done(subject).map((one) => one.number))) {
        if (!(await last.register(subject, number, false))) {
          this.#violate("what was registered is there", `schema ${number} of ${subject} cannot be registered again`)
        }
      }
      if (this.#backend.state.list("schema/subject/").length === 0) continue
      const ids = await last.look(subject)
      if (ids !== undefined) this.#stage.book.check(subject, ids)
    }
  }

  #checkLeft(program: SimProgram): void {
    if (!program.isAlive) return
    if (program.clock.timers > 0) {
      this.#violate("nothing is left", `${program.clock.timers} timers of program ${program.id} are left`)
    }
    if (program.session.open > 0) {
      this.#violate("nothing is left", `${program.session.open} requests of program ${program.id} are left`)
    }
  }

  async #within(work: () => Promise<void>): Promise<void> {
    let isDone = false
    work()
      .catch((error: unknown) => this.#violate("programs run", String(error)))
      .finally(() => {
        isDone = true
      })
    await this.#finish(() => isDone)
  }

  async #finish(isDone: () => boolean): Promise<void> {
    if (await this.#clock.runUntil(isDone, endMs)) return
    this.#violate("every call settles", `after ${endMs} ms: ${this.#stage.calls.open.slice(0, 5).join(", ")}`)
  }
}
