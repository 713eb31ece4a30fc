/** One simulated life of programs that read: consumers that come, stall, are killed and end, all of it decided by one seed. */
import { FaultyBackend } from "../backend/faulty-backend.ts"
import { manifestOf } from "../backend/manifests.ts"
import { Chance } from "../chance.ts"
import { Calls } from "../sim-calls.ts"
import { SimClock } from "../sim-clock.ts"
import type { SimulationOptions, SimulationResult } from "../simulation.ts"
import { Trace } from "../trace.ts"
import { observed } from "../unobserved.ts"
import { streamName, type Violation } from "../workload/world.ts"
import { readingChecks } from "./checks/all.ts"
import { ConsumerActor } from "./consumer-actor.ts"
import type { Owner } from "./owner.ts"
import { ownersOf } from "./owners.ts"
import { Program, placeKey } from "./program.ts"
import { ReadingDesk } from "./reading-desk.ts"
import { ReadingEvents } from "./reading-events.ts"
import { ReadingPlan, type ReadingWeather, readingWeatherOf } from "./reading-plan.ts"
import { RecordFeed } from "./record-feed.ts"

/** Within so long, in ms, everything is delivered once all is well: beyond every retry, session and pause of a simulation. */
const calmMs = 300_000

/** How often the world looks whether somebody has to follow on another one, in ms. */
const lookMs = 5000

/** Within so long a program ends, in ms. */
const endMs = 600_000

/** Runs one seed. It never rejects; what breaks a promise is in `violations`. One at a time in a process. */
export async function simulateReading(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const clock = new SimClock()
  const trace = new Trace(clock, options.trace ?? false)
  const found: Violation[] = []
  const violate = (invariant: string, text: string): void => {
    found.push({ invariant, text })
    trace.note("world", `VIOLATION ${invariant}: ${text}`)
  }
  const simulation = new ReadingSimulation(seed, { clock, trace, violate })
  await observed(violate, () => simulation.run())
  return { seed, violations: found, trace: trace.lines, calls: simulation.handedOut, records: simulation.records }
}

interface Parts {
  readonly clock: SimClock
  readonly trace: Trace
  readonly violate: (invariant: string, text: string) => void
}

class ReadingSimulation {
  readonly #seed: number
  readonly #clock: SimClock
  readonly #trace: Trace
  readonly #violate: Parts["violate"]
  readonly #chance: Chance
  readonly #weather: ReadingWeather
  readonly #plan: ReadingPlan
  readonly #desk: ReadingDesk
  readonly #backend: FaultyBackend
  readonly #events: ReadingEvents
  readonly #feed: RecordFeed
  readonly #calls: Calls
  readonly #topics: readonly string[]
  readonly #owners: readonly Owner[]
  readonly #actors: ConsumerActor[] = []
  #isCalm = false

  constructor(seed: number, { clock, trace, violate }: Parts) {
    const chance = new Chance(seed, 10)
    this.#seed = seed
    this.#clock = clock
    this.#trace = trace
    this.#violate = violate
    this.#chance = chance
    this.#weather = readingWeatherOf(chance)
    this.#plan = new ReadingPlan(new Chance(seed, 11), this.#weather)
    this.#desk = new ReadingDesk(trace, readingChecks(), violate)
    const manifest = manifestOf("sequence", { groups: true, holes: chance.happens(0.5) })
    this.#backend = new FaultyBackend({ clock, manifest, faults: this.#plan, reading: this.#desk })
    this.#desk.attach(this.#backend)
    this.#events = new ReadingEvents({ backend: this.#backend, clock, trace, chance: new Chance(seed, 12) })
    this.#feed = new RecordFeed(this.#backend, new Chance(seed, 13))
    this.#calls = new Calls(this.#desk)
    this.#topics = chance.of([["a"], ["a"], ["a", "b"]])
    this.#owners = ownersOf(chance, this.#topics, clock.nowMicros())
  }

  get handedOut(): number {
    return this.#desk.programs.reduce((sum, { handedOut }) => sum + handedOut, 0)
  }

  get records(): number {
    return this.#feed.records
  }

  async run(): Promise<void> {
    const trace = this.#trace
    trace.note("world", `seed ${this.#seed}: weather ${JSON.stringify(this.#weather)}`)
    for (const { of, topics, semantics, options } of this.#owners) {
      if (trace.isOn) trace.note("world", `${of.name} reads ${topics.join(" and ")}, ${semantics}: ${shown(options)}`)
    }
    for (const topic of this.#topics) this.#events.create(topic, this.#chance.between(1, 3))
    await this.#script()
    await this.#calmDown()
    await this.#end()
  }

  async #script(): Promise<void> {
    const chance = this.#chance
    for (let steps = chance.between(4, 24); steps > 0; steps--) {
      this.#append()
      const [owner, actor] = [chance.of(this.#owners), this.#someActor()]
      if (this.#living(owner).length < (owner.partition === undefined ? 3 : 1) && chance.happens(0.3))
        this.#start(owner)
      if (actor !== undefined && chance.happens(this.#weather.accidents)) this.#accident(actor)
      if (chance.happens(this.#weather.events)) this.#events.happen()
      await this.#clock.advance(
        chance.weighted([
          [3, 0],
          [4, chance.between(1, 50)],
          [3, chance.between(50, 1500)],
          [1, chance.between(1500, 15_000)],
        ]),
      )
    }
  }

  /** All is well from here on: everything that is in the log has to reach everybody. */
  async #calmDown(): Promise<void> {
    this.#trace.note("world", "calm")
    this.#plan.isOver = true
    this.#events.heal()
    // What was deleted is made again by then.
    await this.#clock.advance(6000)
    this.#isCalm = true
    for (const topic of this.#backend.topics) {
      for (let partition = 0; partition < topic.logs.length; partition++) this.#feed.append(topic, partition, 2)
    }
    for (const owner of this.#owners) if (this.#living(owner).length === 0) this.#start(owner)
    const isDone = (): boolean => this.#owners.every((owner) => this.#missing(owner) === undefined)
    const untilMs = this.#clock.monotonicMs() + calmMs
    // Who is out by itself is followed by another one.
    while (!isDone() && !this.#clock.isExhausted && this.#clock.monotonicMs() < untilMs) {
      for (const owner of this.#owners) if (this.#living(owner).length === 0) this.#start(owner)
      // The clock goes as far as a timer.
      const end = this.#clock.setTimer(lookMs, () => {})
      await this.#clock.runUntil(isDone, lookMs)
      end.cancel()
    }
    for (const owner of this.#owners) {
      const missing = this.#missing(owner)
      if (missing !== undefined) this.#violate(missing.invariant, missing.text)
    }
  }

  async #end(): Promise<void> {
    const chance = this.#chance
    this.#trace.note("world", "the end")
    let open = 0
    for (const actor of this.#actors) {
      if (!actor.program.isAlive) continue
      open++
      const how = chance.of(["shutdown", "shutdown", "dispose", "close"] as const)
      const ending = actor.end(how, endMs).finally(() => {
        open--
      })
      ending.catch((error: unknown) => this.#violate("programs run", String(error)))
    }
    const isOver = await this.#clock.runUntil(() => open === 0, 2 * endMs)
    const calls = this.#calls.open
    if (!isOver)
      this.#violate("everything ends", `${open} programs have not ended, with ${calls.slice(0, 5).join(", ")} open`)
    if (calls.length > 0)
      this.#violate("every call settles", `${calls.length} calls are open: ${calls.slice(0, 5).join(", ")}`)
    for (const { program } of this.#actors) program.kill()
    await this.#clock.runUntil(() => this.#clock.timers === 0, Number.POSITIVE_INFINITY)
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
    const chance = this.#chance
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
    const { clock, backend, seed } = { clock: this.#clock, backend: this.#backend, seed: this.#seed }
    const program = new Program(this.#actors.length, owner, { clock, backend, seed })
    const stage = {
      desk: this.#desk,
      calls: this.#calls,
      isCalm: () => this.#isCalm,
      isAlwaysCalm: this.#weather.trouble === 0,
    }
    const actor = new ConsumerActor(program, stage)
    this.#actors.push(actor)
    this.#desk.note(program, `begins, for ${owner.of.name}`)
    // It never rejects.
    void actor.live()
  }

  #living(owner: Owner): readonly ConsumerActor[] {
    return this.#actors.filter(({ program, isOver }) => program.owner === owner && program.isAlive && !isOver)
  }

  #someActor(): ConsumerActor | undefined {
    const living = this.#actors.filter(({ program, isOver }) => program.isAlive && !isOver)
    return living.length === 0 ? undefined : this.#chance.of(living)
  }

  #accident(actor: ConsumerActor): void {
    const chance = this.#chance
    const { program } = actor
    const what = chance.weighted([
      [3, "kill"],
      [3, "stall"],
      [2, "end"],
    ])
    if (what === "kill") {
      this.#desk.note(program, "is killed")
      program.kill()
    } else if (what === "stall") {
      const ms = chance.of([chance.between(10, 2000), chance.between(2000, 30_000)])
      this.#desk.note(program, `does not get to run for ${ms} ms`)
      program.stall(ms)
    } else {
      // It never rejects.
      void actor.end(chance.of(["shutdown", "dispose", "close"]), chance.of([0, 100, 5000, endMs]))
    }
  }
}

function shown(options: Owner["options"]): string {
  return JSON.stringify(options, (_, value: unknown) => (typeof value === "bigint" ? `${value}n` : value))
}
