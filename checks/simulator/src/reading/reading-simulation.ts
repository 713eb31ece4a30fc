/** One simulated life of programs that read: consumers that come, stall, are killed and end, all of it decided by one seed. */
import { FaultyBackend } from "../backend/faulty-backend.ts"
import { manifestOf } from "../backend/manifests.ts"
import { Chance } from "../chance.ts"
import { ProgramCrew } from "../program-crew.ts"
import type { SimulationOptions, SimulationResult } from "../simulation.ts"
import { type SimulatedLife, SimulationFrame } from "../simulation-frame.ts"
import { streamName, type Violation } from "../workload/world.ts"
import { readingChecks } from "./checks/all.ts"
import { ConsumerActor } from "./consumer-actor.ts"
import type { Owner } from "./owner.ts"
import { ownersOf } from "./owners.ts"
import { Program, placeKey } from "./program.ts"
import { ReadingDesk } from "./reading-desk.ts"
import { ReadingEvents } from "./reading-events.ts"
import { ReadingPlan } from "./reading-plan.ts"
import { RecordFeed } from "./record-feed.ts"

/** Within so long, in ms, everything is delivered once all is well: beyond every retry, session and pause of a simulation. */
const calmMs = 300_000

/** Runs one seed. It never rejects; what breaks a promise is in `violations`. One at a time in a process. */
export async function simulateReading(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const frame = new SimulationFrame(seed, 10, options)
  return await frame.run(new ReadingSimulation(frame))
}

class ReadingSimulation implements SimulatedLife {
  readonly #frame: SimulationFrame
  readonly #plan: ReadingPlan
  readonly #desk: ReadingDesk
  readonly #backend: FaultyBackend
  readonly #events: ReadingEvents
  readonly #feed: RecordFeed
  readonly #crew: ProgramCrew<"shutdown" | "dispose" | "close", ConsumerActor>
  readonly #topics: readonly string[]
  readonly #owners: readonly Owner[]
  #isCalm = false

  constructor(frame: SimulationFrame) {
    const { seed, clock, trace, chance, weather } = frame
    this.#frame = frame
    this.#plan = new ReadingPlan(new Chance(seed, 11), weather)
    this.#desk = new ReadingDesk(frame, readingChecks())
    const manifest = manifestOf("sequence", { groups: true, holes: chance.happens(0.5) })
    this.#backend = new FaultyBackend({ clock, manifest, faults: this.#plan, reading: this.#desk })
    this.#desk.attach(this.#backend)
    this.#events = new ReadingEvents({ backend: this.#backend, clock, trace, chance: new Chance(seed, 12) })
    this.#feed = new RecordFeed(this.#backend, new Chance(seed, 13))
    this.#crew = new ProgramCrew(frame, {
      kills: 3,
      early: ["shutdown", "dispose", "close"],
      last: ["shutdown", "shutdown", "dispose", "close"],
    })
    this.#topics = chance.of([["a"], ["a"], ["a", "b"]])
    this.#owners = ownersOf(chance, this.#topics, clock.nowMicros())
  }

  get calls(): number {
    return this.#desk.programs.reduce((sum, { handedOut }) => sum + handedOut, 0)
  }

  get records(): number {
    return this.#feed.records
  }

  async run(): Promise<void> {
    const trace = this.#frame.trace
    trace.note("world", `seed ${this.#frame.seed}: weather ${JSON.stringify(this.#frame.weather)}`)
    for (const { of, topics, semantics, options } of this.#owners) {
      if (trace.isOn) trace.note("world", `${of.name} reads ${topics.join(" and ")}, ${semantics}: ${shown(options)}`)
    }
    for (const topic of this.#topics) this.#events.create(topic, this.#frame.chance.between(1, 3))
    await this.#script()
    await this.#calmDown()
    await this.#crew.end()
  }

  async #script(): Promise<void> {
    const chance = this.#frame.chance
    for (let steps = chance.between(4, 24); steps > 0; steps--) {
      this.#append()
      const [owner, actor] = [chance.of(this.#owners), this.#crew.some()]
      if (this.#living(owner).length < (owner.partition === undefined ? 3 : 1) && chance.happens(0.3))
        this.#start(owner)
      if (actor !== undefined && chance.happens(this.#frame.weather.accidents)) this.#crew.befall(actor)
      if (chance.happens(this.#frame.weather.events)) this.#events.happen()
      await this.#frame.pass()
    }
  }

  /** All is well from here on: everything that is in the log has to reach everybody. */
  async #calmDown(): Promise<void> {
    this.#frame.trace.note("world", "calm")
    this.#plan.isOver = true
    this.#events.heal()
    // What was deleted is made again by then.
    await this.#frame.clock.advance(6000)
    this.#isCalm = true
    for (const topic of this.#backend.topics) {
      for (let partition = 0; partition < topic.logs.length; partition++) this.#feed.append(topic, partition, 2)
    }
    // Who is out by itself is followed by another one.
    const replace = (): void => {
      for (const owner of this.#owners) if (this.#living(owner).length === 0) this.#start(owner)
    }
    replace()
    const isDone = (): boolean => this.#owners.every((owner) => this.#missing(owner) === undefined)
    if (!isDone()) await this.#crew.finish(isDone, calmMs, replace)
    for (const owner of this.#owners) {
      const missing = this.#missing(owner)
      if (missing !== undefined) this.#frame.violate(missing.invariant, missing.text)
    }
  }

  /** What an owner has not got, though it is there. */
  #missing(owner: Owner): Violation | undefined {
    for (const name of owner.topics) {
      const topic = this.#backend.find({ stream: streamName, topic: name })
      for (let partition = 0; partition < (topic?.logs.length ?? 0); partition++) {
        if (owner.partition !== undefined && owner.partition !== partition) continue
        const history = this.#desk.present({ stream: streamName, topic: name, partition })
        if (history === undefined) continue
        const end = history.log.records.length
        // Where `startAt` names a place that is not reached yet, nothing is to come.
        const { startAt } = owner.options
        if (startAt?.kind === "offset" && end <= Number(startAt.value)) continue
        const anchors = this.#living(owner).map(({ program }) => program.anchors.get(placeKey(history)) ?? 0)
        if (Math.max(0, ...anchors) >= end) continue
        const ledger = this.#desk.ledger(owner, history)
        const place = `${name}/${partition}`
        if (!ledger.isDone(end - 1)) {
          const text = `${owner.of.name} has not got ${place}@${end - 1} within ${calmMs} ms of calm`
          return { invariant: "nothing stalls", text }
        }
        if (owner.semantics !== "onRead" && ledger.prefix < end) {
          const text = `${owner.of.name} has never handled ${place}@${ledger.prefix}, though it has got what lies behind`
          return { invariant: "nothing is lost", text }
        }
      }
    }
    return undefined
  }

  #append(): void {
    const chance = this.#frame.chance
    for (let times = chance.below(3); times > 0; times--) {
      const topic = chance.of(this.#backend.topics)
      if (topic === undefined) return
      this.#feed.append(
        topic,
        chance.below(topic.logs.length),
        chance.weighted([
          [5, chance.between(1, 4)],
          [1, chance.between(4, 30)],
        ]),
      )
    }
  }

  #start(owner: Owner): void {
    const { clock, seed } = this.#frame
    const program = new Program(this.#crew.members.length, owner, { clock, backend: this.#backend, seed })
    const stage = {
      desk: this.#desk,
      calls: this.#crew.calls,
      isCalm: () => this.#isCalm,
      isAlwaysCalm: this.#frame.weather.trouble === 0,
    }
    const actor = new ConsumerActor(program, stage)
    this.#crew.begin(actor, `begins, for ${owner.of.name}`)
  }

  #living(owner: Owner): readonly ConsumerActor[] {
    return this.#crew.living.filter(({ program }) => program.owner === owner)
  }
}

function shown(options: Owner["options"]): string {
  return JSON.stringify(options, (_, value: unknown) => (typeof value === "bigint" ? `${value}n` : value))
}
