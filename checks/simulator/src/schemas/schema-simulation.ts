/** One simulated life of programs that register schemas in a backend's small state, all of it decided by one seed. */
import { FaultyBackend } from "../backend/faulty-backend.ts"
import { manifestOf } from "../backend/manifests.ts"
import { Chance } from "../chance.ts"
import { ReadingPlan } from "../reading/reading-plan.ts"
import { Calls } from "../sim-calls.ts"
import { SimProgram } from "../sim-program.ts"
import type { SimulationOptions, SimulationResult } from "../simulation.ts"
import { type SimulatedLife, SimulationFrame } from "../simulation-frame.ts"
import { SchemaActor, type SchemaStage } from "./schema-actor.ts"
import { SchemaBook, subjects } from "./schema-book.ts"

/** Within so long every call settles, in ms. */
const endMs = 600_000

/** Runs one seed. It never rejects; what breaks a promise is in `violations`. One at a time in a process. */
export async function simulateSchemas(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const frame = new SimulationFrame(seed, 40, options)
  return await frame.run(new SchemaSimulation(frame))
}

class SchemaSimulation implements SimulatedLife {
  readonly #frame: SimulationFrame
  readonly #plan: ReadingPlan
  readonly #backend: FaultyBackend
  readonly #stage: SchemaStage
  readonly #actors: SchemaActor[] = []

  constructor(frame: SimulationFrame) {
    const { seed, clock, weather } = frame
    this.#frame = frame
    this.#plan = new ReadingPlan(new Chance(seed, 41), weather)
    this.#backend = new FaultyBackend({ clock, manifest: manifestOf("sequence", { state: true }), faults: this.#plan })
    this.#stage = { book: new SchemaBook(frame.violate), calls: new Calls(frame), note: frame.note }
  }

  readonly records: number = 0

  /** Registrations that were asked for. */
  get calls(): number {
    return this.#stage.book.registrations.length
  }

  async run(): Promise<void> {
    this.#frame.trace.note("world", `seed ${this.#frame.seed}: weather ${JSON.stringify(this.#frame.weather)}`)
    await this.#script()
    this.#frame.trace.note("world", "calm")
    this.#plan.isOver = true
    this.#backend.restore()
    await this.#finish(() => this.#actors.every(({ isOver, program }) => isOver || !program.isAlive))
    for (const { program } of this.#actors) {
      if (program.isAlive) for (const text of program.left) this.#frame.violate("nothing is left", text)
    }
    const last = this.#start()
    last.isOver = true
    await this.#within(() => this.#lookAtLast(last))
    for (const actor of this.#actors) if (actor.program.isAlive) await this.#within(() => actor.end(endMs))
  }

  async #script(): Promise<void> {
    const chance = this.#frame.chance
    for (let steps = chance.between(2, 10); steps > 0; steps--) {
      const living = this.#actors.filter(({ isOver, program }) => !isOver && program.isAlive)
      if (living.length < 3) void this.#start().live()
      const actor = living.length === 0 ? undefined : chance.of(living)
      if (actor !== undefined && chance.happens(this.#frame.weather.accidents)) this.#accident(actor)
      if (chance.happens(this.#frame.weather.events)) this.#outage(chance.of([chance.between(1, 3000), 60_000]))
      await this.#frame.clock.advance(chance.of([0, chance.below(50), chance.below(3000)]))
    }
  }

  #start(): SchemaActor {
    const { clock, seed } = this.#frame
    const actor = new SchemaActor(
      new SimProgram(this.#actors.length, { clock, backend: this.#backend, seed }),
      this.#stage,
    )
    this.#actors.push(actor)
    return actor
  }

  #accident(actor: SchemaActor): void {
    const chance = this.#frame.chance
    const { program } = actor
    const what = chance.of(["kill", "stall", "end"] as const)
    this.#stage.note(program, what)
    if (what === "kill") program.kill()
    else if (what === "stall") program.stall(chance.of([100, 30_000]))
    else
      actor
        .end(chance.of([0, 100, 60_000]))
        .catch((error: unknown) => this.#frame.violate("programs run", String(error)))
  }

  #outage(ms: number): void {
    if (this.#backend.isDown) return
    this.#frame.trace.note("backend", `is down for ${ms} ms`)
    this.#backend.cut()
    this.#frame.clock.setTimer(ms, () => this.#backend.restore())
  }

  /** All is well: what there is can be registered again, and is what was told. */
  async #lookAtLast(last: SchemaActor): Promise<void> {
    for (const subject of subjects) {
      for (const number of new Set(this.#stage.book.done(subject).map((one) => one.number))) {
        if (!(await last.register(subject, number, false))) {
          this.#frame.violate(
            "what was registered is there",
            `schema ${number} of ${subject} cannot be registered again`,
          )
        }
      }
      if (this.#backend.state.list("schema/subject/").length === 0) continue
      const ids = await last.look(subject)
      if (ids !== undefined) this.#stage.book.check(subject, ids)
    }
  }

  async #within(work: () => Promise<void>): Promise<void> {
    let isDone = false
    work()
      .catch((error: unknown) => this.#frame.violate("programs run", String(error)))
      .finally(() => {
        isDone = true
      })
    await this.#finish(() => isDone)
  }

  async #finish(isDone: () => boolean): Promise<void> {
    if (await this.#frame.clock.runUntil(isDone, endMs)) return
    this.#frame.violate("every call settles", `after ${endMs} ms: ${this.#stage.calls.open.slice(0, 5).join(", ")}`)
  }
}
