/** One simulated life of programs that take from work queues, all of it decided by one seed. */
import { FaultyBackend } from "../backend/faulty-backend.ts"
import { manifestOf } from "../backend/manifests.ts"
import { Chance } from "../chance.ts"
import { ReadingPlan, type ReadingWeather, readingWeatherOf } from "../reading/reading-plan.ts"
import { RecordFeed } from "../reading/record-feed.ts"
import { Calls } from "../sim-calls.ts"
import { SimClock } from "../sim-clock.ts"
import type { SimulationOptions, SimulationResult } from "../simulation.ts"
import { Trace } from "../trace.ts"
import { observed } from "../unobserved.ts"
import { streamName, type Violation } from "../workload/world.ts"
import { QueueActor } from "./queue-actor.ts"
import { numberAt, QueueDesk } from "./queue-desk.ts"
import { QueueEvents } from "./queue-events.ts"
import { deadTopicName, placesOf } from "./queue-places.ts"
import { type QueuePlace, QueueProgram } from "./queue-program.ts"

/** Within so long, in ms, everything is done once all is well: beyond every wait, delay and retry of a simulation. */
const calmMs = 600_000

/** How often the world looks whether somebody has to follow on another one, in ms. */
const lookMs = 5000

/** Within so long a program ends, in ms. */
const endMs = 600_000

const topicName = "a"

/** Runs one seed. It never rejects; what breaks a promise is in `violations`. One at a time in a process. */
export async function simulateQueues(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const clock = new SimClock()
  const trace = new Trace(clock, options.trace ?? false)
  const found: Violation[] = []
  const violate = (invariant: string, text: string): void => {
    found.push({ invariant, text })
    trace.note("world", `VIOLATION ${invariant}: ${text}`)
  }
  const simulation = new QueueSimulation(seed, { clock, trace, violate })
  await observed(violate, () => simulation.run())
  return { seed, violations: found, trace: trace.lines, calls: simulation.handedOut, records: simulation.records }
}

interface Parts {
  readonly clock: SimClock
  readonly trace: Trace
  readonly violate: (invariant: string, text: string) => void
}

class QueueSimulation {
  readonly #seed: number
  readonly #clock: SimClock
  readonly #trace: Trace
  readonly #violate: Parts["violate"]
  readonly #chance: Chance
  readonly #weather: ReadingWeather
  readonly #plan: ReadingPlan
  readonly #desk: QueueDesk
  readonly #backend: FaultyBackend
  readonly #events: QueueEvents
  readonly #feed: RecordFeed
  readonly #calls: Calls
  readonly #places: readonly QueuePlace[]
  readonly #actors: QueueActor[] = []
  readonly #areHandlersGood: boolean
  #isCalm = false

  constructor(seed: number, { clock, trace, violate }: Parts) {
    const chance = new Chance(seed, 20)
    this.#seed = seed
    this.#clock = clock
    this.#trace = trace
    this.#violate = violate
    this.#chance = chance
    this.#weather = readingWeatherOf(chance)
    this.#plan = new ReadingPlan(new Chance(seed, 21), this.#weather)
    this.#desk = new QueueDesk(trace, violate)
    const manifest = manifestOf("sequence", { queues: true, holes: chance.happens(0.5) })
    this.#backend = new FaultyBackend({ clock, manifest, faults: this.#plan, queueWatch: this.#desk })
    this.#desk.attach(this.#backend)
    this.#places = placesOf(chance, topicName)
    const [places, desk, backend] = [this.#places, this.#desk, this.#backend]
    this.#events = new QueueEvents({ backend, clock, trace, chance: new Chance(seed, 22), desk, places })
    this.#feed = new RecordFeed(this.#backend, new Chance(seed, 23))
    this.#calls = new Calls(this.#desk)
    this.#areHandlersGood = chance.happens(this.#weather.trouble === 0 ? 0.7 : 0.2)
    this.#desk.isAlwaysWell = this.#weather.trouble === 0
    this.#desk.isCalm = this.#weather.trouble === 0 && this.#areHandlersGood
  }

  get handedOut(): number {
    return this.#desk.programs.reduce((sum, { handedOut }) => sum + handedOut, 0)
  }

  get records(): number {
    return this.#feed.records
  }

  async run(): Promise<void> {
    const trace = this.#trace
    const handlers = this.#areHandlersGood ? "good" : "mixed"
    trace.note("world", `seed ${this.#seed}: weather ${JSON.stringify(this.#weather)}, ${handlers} handlers`)
    for (const { queue, options, consumer } of this.#places) {
      trace.note("world", `${queue}: ${JSON.stringify(options)}, taken with ${JSON.stringify(consumer)}`)
    }
    this.#events.create(topicName, this.#chance.between(1, 3))
    this.#events.create(deadTopicName, 1)
    await this.#script()
    await this.#calmDown()
    await this.#end()
  }

  async #script(): Promise<void> {
    const chance = this.#chance
    for (let steps = chance.between(4, 24); steps > 0; steps--) {
      this.#append()
      const [place, actor] = [chance.of(this.#places), this.#someActor()]
      if (this.#living(place).length < 3 && chance.happens(0.4)) this.#start(place)
      if (actor !== undefined && chance.happens(this.#weather.accidents)) this.#accident(actor)
      if (actor !== undefined && chance.happens(0.04)) void actor.end("shutdown", endMs)
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

  /** All is well from here on: every message has to be done, or buried. */
  async #calmDown(): Promise<void> {
    this.#trace.note("world", "calm")
    this.#plan.isOver = true
    this.#events.heal()
    // What was deleted is made again by then.
    await this.#clock.advance(6000)
    this.#isCalm = true
    const topic = this.#backend.find({ stream: streamName, topic: topicName })
    for (let partition = 0; partition < (topic?.logs.length ?? 0); partition++) {
      if (topic !== undefined) this.#feed.append(topic, partition, 2)
    }
    const isDone = (): boolean => this.#places.every((place) => this.#missing(place) === undefined)
    const untilMs = this.#clock.monotonicMs() + calmMs
    do {
      for (const place of this.#places) if (this.#living(place).length === 0) this.#start(place)
      // The clock goes as far as a timer.
      const end = this.#clock.setTimer(lookMs, () => {})
      await this.#clock.runUntil(isDone, lookMs)
      end.cancel()
    } while (!isDone() && !this.#clock.isExhausted && this.#clock.monotonicMs() < untilMs)
    for (const place of this.#places) {
      const text = this.#missing(place)
      if (text !== undefined) this.#violate("nothing stalls", text)
      else this.#compare(place)
    }
  }

  /** What is left to do in a queue, in words. */
  #missing({ topic, queue: name }: QueuePlace): string | undefined {
    const queue = this.#backend.queues.find({ stream: streamName, topic }, name)
    if (queue === undefined) return `${name} was not made again within ${calmMs} ms of calm`
    const { pending, undelivered } = queue.left
    // What is on its way to a program that ends is settled, and nobody's.
    const hasEnded = this.#actors.some(({ isOver }) => isOver)
    if (queue.spec.ackPolicy === "none" && this.#desk.isCalm && !hasEnded) {
      const ledger = this.#desk.ledger(queue)
      const lost = queue.messages.find(({ offset, log }) => ledger.item(numberAt(log, offset)).given === 0)
      if (lost !== undefined) return `${name} has settled ${topic}/${lost.partition}@${lost.offset}, which nobody got`
    }
    if (pending.length === 0 && undelivered === 0) return undefined
    return `${name} has ${pending.length} messages that are not settled, and ${undelivered} that nobody got, after ${calmMs} ms of calm`
  }

  /** Every message is done, buried, or was not wanted. */
  #compare({ topic, queue: name, options }: QueuePlace): void {
    const queue = this.#backend.queues.find({ stream: streamName, topic }, name)
    if (queue === undefined) return
    const ledger = this.#desk.ledger(queue)
    // An ack of one taker covers what another one has in hand, and what was handed to one that never heard of it.
    const isCovered = options.ackPolicy === "all" && (this.#actors.length > 1 || !this.#desk.isAlwaysWell)
    if (isCovered || options.ackPolicy === "none") return
    for (const { partition, offset, log } of queue.messages) {
      const item = ledger.item(numberAt(log, offset))
      if (item.handled > 0 || item.isUnwanted || item.isBuried) continue
      this.#violate("nothing is lost", `${name} has settled ${topic}/${partition}@${offset}, which nobody has handled`)
      return
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

  #append(): void {
    const chance = this.#chance
    const topic = this.#backend.find({ stream: streamName, topic: topicName })
    for (let times = chance.below(3); times > 0 && topic !== undefined; times--) {
      const count = chance.weighted([
        [5, chance.between(1, 4)],
        [1, chance.between(4, 30)],
      ])
      this.#feed.append(topic, chance.below(topic.logs.length), count)
    }
  }

  #start(place: QueuePlace): void {
    const { clock, backend, seed } = { clock: this.#clock, backend: this.#backend, seed: this.#seed }
    const program = new QueueProgram(this.#actors.length, place, { clock, backend, seed })
    this.#desk.programs.push(program)
    const stage = {
      desk: this.#desk,
      calls: this.#calls,
      isCalm: () => this.#isCalm,
      areHandlersGood: this.#areHandlersGood,
    }
    const actor = new QueueActor(program, stage)
    this.#actors.push(actor)
    this.#desk.note(program, `begins, on ${place.queue}`)
    // It never rejects.
    void actor.live()
  }

  #living(place: QueuePlace): readonly QueueActor[] {
    return this.#actors.filter(({ program, isOver }) => program.place === place && program.isAlive && !isOver)
  }

  #someActor(): QueueActor | undefined {
    const living = this.#actors.filter(({ program, isOver }) => program.isAlive && !isOver)
    return living.length === 0 ? undefined : this.#chance.of(living)
  }

  #accident(actor: QueueActor): void {
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
