/** One simulated life of programs that take from work queues, all of it decided by one seed. */
import { FaultyBackend } from "../backend/faulty-backend.ts"
import { manifestOf } from "../backend/manifests.ts"
import { Chance } from "../chance.ts"
import { endMs, ProgramCrew } from "../program-crew.ts"
import { ReadingPlan } from "../reading/reading-plan.ts"
import { RecordFeed } from "../reading/record-feed.ts"
import type { SimulationOptions, SimulationResult } from "../simulation.ts"
import { type SimulatedLife, SimulationFrame } from "../simulation-frame.ts"
import { streamName } from "../workload/world.ts"
import { QueueActor } from "./queue-actor.ts"
import { numberAt, QueueDesk } from "./queue-desk.ts"
import { QueueEvents } from "./queue-events.ts"
import { deadTopicName, placesOf } from "./queue-places.ts"
import { type QueuePlace, QueueProgram } from "./queue-program.ts"

/** Within so long, in ms, everything is done once all is well: beyond every wait, delay and retry of a simulation. */
const calmMs = 600_000

const topicName = "a"

/** Runs one seed. It never rejects; what breaks a promise is in `violations`. One at a time in a process. */
export async function simulateQueues(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const frame = new SimulationFrame(seed, 20, options)
  return await frame.run(new QueueSimulation(frame))
}

class QueueSimulation implements SimulatedLife {
  readonly #frame: SimulationFrame
  readonly #plan: ReadingPlan
  readonly #desk: QueueDesk
  readonly #backend: FaultyBackend
  readonly #events: QueueEvents
  readonly #feed: RecordFeed
  readonly #crew: ProgramCrew<"shutdown" | "dispose" | "close", QueueActor>
  readonly #places: readonly QueuePlace[]
  readonly #areHandlersGood: boolean
  #isCalm = false

  constructor(frame: SimulationFrame) {
    const { seed, clock, trace, chance, weather } = frame
    this.#frame = frame
    this.#plan = new ReadingPlan(new Chance(seed, 21), weather)
    this.#desk = new QueueDesk(frame)
    const manifest = manifestOf("sequence", { queues: true, holes: chance.happens(0.5) })
    this.#backend = new FaultyBackend({ clock, manifest, faults: this.#plan, queueWatch: this.#desk })
    this.#desk.attach(this.#backend)
    this.#places = placesOf(chance, topicName)
    const [places, desk, backend] = [this.#places, this.#desk, this.#backend]
    this.#events = new QueueEvents({ backend, clock, trace, chance: new Chance(seed, 22), desk, places })
    this.#feed = new RecordFeed(this.#backend, new Chance(seed, 23))
    this.#crew = new ProgramCrew(frame, {
      kills: 3,
      early: ["shutdown", "dispose", "close"],
      last: ["shutdown", "shutdown", "dispose", "close"],
    })
    this.#areHandlersGood = chance.happens(weather.trouble === 0 ? 0.7 : 0.2)
    this.#desk.isAlwaysWell = weather.trouble === 0
    this.#desk.isCalm = weather.trouble === 0 && this.#areHandlersGood
  }

  get calls(): number {
    return this.#desk.programs.reduce((sum, { handedOut }) => sum + handedOut, 0)
  }

  get records(): number {
    return this.#feed.records
  }

  async run(): Promise<void> {
    const trace = this.#frame.trace
    const handlers = this.#areHandlersGood ? "good" : "mixed"
    trace.note(
      "world",
      `seed ${this.#frame.seed}: weather ${JSON.stringify(this.#frame.weather)}, ${handlers} handlers`,
    )
    for (const { queue, options, consumer } of this.#places) {
      trace.note("world", `${queue}: ${JSON.stringify(options)}, taken with ${JSON.stringify(consumer)}`)
    }
    this.#events.create(topicName, this.#frame.chance.between(1, 3))
    this.#events.create(deadTopicName, 1)
    await this.#script()
    await this.#calmDown()
    await this.#crew.end()
  }

  async #script(): Promise<void> {
    const chance = this.#frame.chance
    for (let steps = chance.between(4, 24); steps > 0; steps--) {
      this.#append()
      const [place, actor] = [chance.of(this.#places), this.#crew.some()]
      if (this.#living(place).length < 3 && chance.happens(0.4)) this.#start(place)
      if (actor !== undefined && chance.happens(this.#frame.weather.accidents)) this.#crew.befall(actor)
      if (actor !== undefined && chance.happens(0.04)) void actor.end("shutdown", endMs)
      if (chance.happens(this.#frame.weather.events)) this.#events.happen()
      await this.#frame.pass()
    }
  }

  /** All is well from here on: every message has to be done, or buried. */
  async #calmDown(): Promise<void> {
    this.#frame.trace.note("world", "calm")
    this.#plan.isOver = true
    this.#events.heal()
    // What was deleted is made again by then.
    await this.#frame.clock.advance(6000)
    this.#isCalm = true
    const topic = this.#backend.find({ stream: streamName, topic: topicName })
    for (let partition = 0; partition < (topic?.logs.length ?? 0); partition++) {
      if (topic !== undefined) this.#feed.append(topic, partition, 2)
    }
    const isDone = (): boolean => this.#places.every((place) => this.#missing(place) === undefined)
    await this.#crew.finish(isDone, calmMs, () => {
      for (const place of this.#places) if (this.#living(place).length === 0) this.#start(place)
    })
    for (const place of this.#places) {
      const text = this.#missing(place)
      if (text !== undefined) this.#frame.violate("nothing stalls", text)
      else this.#compare(place)
    }
  }

  /** What is left to do in a queue, in words. */
  #missing({ topic, queue: name }: QueuePlace): string | undefined {
    const queue = this.#backend.queues.find({ stream: streamName, topic }, name)
    if (queue === undefined) return `${name} was not made again within ${calmMs} ms of calm`
    const { pending, undelivered } = queue.left
    // What is on its way to a program that ends is settled, and nobody's.
    const hasEnded = this.#crew.members.some(({ isOver }) => isOver)
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
    const isCovered = options.ackPolicy === "all" && (this.#crew.members.length > 1 || !this.#desk.isAlwaysWell)
    if (isCovered || options.ackPolicy === "none") return
    for (const { partition, offset, log } of queue.messages) {
      const item = ledger.item(numberAt(log, offset))
      if (item.handled > 0 || item.isUnwanted || item.isBuried) continue
      this.#frame.violate(
        "nothing is lost",
        `${name} has settled ${topic}/${partition}@${offset}, which nobody has handled`,
      )
      return
    }
  }

  #append(): void {
    const chance = this.#frame.chance
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
    const { clock, seed } = this.#frame
    const program = new QueueProgram(this.#crew.members.length, place, { clock, backend: this.#backend, seed })
    this.#desk.programs.push(program)
    const stage = {
      desk: this.#desk,
      calls: this.#crew.calls,
      isCalm: () => this.#isCalm,
      areHandlersGood: this.#areHandlersGood,
    }
    const actor = new QueueActor(program, stage)
    this.#crew.begin(actor, `begins, on ${place.queue}`)
  }

  #living(place: QueuePlace): readonly QueueActor[] {
    return this.#crew.living.filter(({ program }) => program.place === place)
  }
}
