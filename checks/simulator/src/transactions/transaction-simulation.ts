/** One simulated life of programs that work in transactions, all of it decided by one seed. */
import { FaultyBackend } from "../backend/faulty-backend.ts"
import { manifestOf } from "../backend/manifests.ts"
import { unwatched } from "../backend/reading-watch.ts"
import { Chance } from "../chance.ts"
import { type ReadingWeather, readingWeatherOf } from "../reading/reading-plan.ts"
import { RecordFeed } from "../reading/record-feed.ts"
import { Calls } from "../sim-calls.ts"
import { SimClock } from "../sim-clock.ts"
import { SimProgram } from "../sim-program.ts"
import type { SimulationOptions, SimulationResult } from "../simulation.ts"
import { Trace } from "../trace.ts"
import { observed } from "../unobserved.ts"
import { streamName, type Violation } from "../workload/world.ts"
import { deadTopic, inputTopic, outputTopic, processGroup, processRules, relayGroup, relayRules } from "./outputs.ts"
import { ProcessorActor } from "./processor-actor.ts"
import { RelayActor } from "./relay-actor.ts"
import type { TransactionActor, TransactionStage } from "./transaction-actor.ts"
import { TransactionDesk } from "./transaction-desk.ts"
import { TransactionEvents } from "./transaction-events.ts"
import { TransactionPlan } from "./transaction-plan.ts"
import { TransferActor } from "./transfer-actor.ts"

/** Within so long, in ms, every input has its outputs once all is well: beyond every session, retry and time-out of a simulation. */
const calmMs = 600_000

/** How often the world looks whether somebody has to follow on another one, in ms. */
const lookMs = 5000

/** Within so long a program ends, in ms. */
const endMs = 600_000

/** Records that programs make themselves have numbers from here on. */
const firstOwnNumber = 1_000_000

/** What a seed's programs do. */
type Kind = "transfer" | "relay" | "process"

/** Runs one seed. It never rejects; what breaks a promise is in `violations`. One at a time in a process. */
export async function simulateTransactions(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const clock = new SimClock()
  const trace = new Trace(clock, options.trace ?? false)
  const found: Violation[] = []
  const violate = (invariant: string, text: string): void => {
    found.push({ invariant, text })
    trace.note("world", `VIOLATION ${invariant}: ${text}`)
  }
  const simulation = new TransactionSimulation(seed, { clock, trace, violate })
  await observed(violate, () => simulation.run())
  return { seed, violations: found, trace: trace.lines, calls: simulation.committed, records: simulation.records }
}

interface Parts {
  readonly clock: SimClock
  readonly trace: Trace
  readonly violate: (invariant: string, text: string) => void
}

class TransactionSimulation {
  readonly #seed: number
  readonly #clock: SimClock
  readonly #trace: Trace
  readonly #violate: Parts["violate"]
  readonly #chance: Chance
  readonly #weather: ReadingWeather
  readonly #plan: TransactionPlan
  readonly #desk: TransactionDesk
  readonly #backend: FaultyBackend
  readonly #events: TransactionEvents
  readonly #feed: RecordFeed
  readonly #calls: Calls
  readonly #kinds: readonly Kind[]
  readonly #areProgramsTame: boolean
  readonly #actors: { readonly actor: TransactionActor; readonly kind: Kind }[] = []
  #isCalm = false
  #numbers = firstOwnNumber

  constructor(seed: number, { clock, trace, violate }: Parts) {
    const chance = new Chance(seed, 30)
    this.#seed = seed
    this.#clock = clock
    this.#trace = trace
    this.#violate = violate
    this.#chance = chance
    this.#weather = readingWeatherOf(chance)
    this.#plan = new TransactionPlan(new Chance(seed, 31), this.#weather)
    this.#desk = new TransactionDesk(trace, violate)
    const manifest = manifestOf("sequence", { groups: true, transactions: true, holes: chance.happens(0.5) })
    this.#backend = new FaultyBackend({
      clock,
      manifest,
      faults: this.#plan,
      transactionWatch: this.#desk,
      reading: {
        ...unwatched,
        stored: (_session, owner, entry, refusal) => {
          if (refusal === undefined) this.#desk.stored(owner, entry)
        },
      },
      renewsIdentities: chance.happens(0.6),
    })
    this.#desk.attach(this.#backend)
    const [desk, backend] = [this.#desk, this.#backend]
    this.#events = new TransactionEvents({ backend, clock, trace, chance: new Chance(seed, 32), desk })
    this.#feed = new RecordFeed(this.#backend, new Chance(seed, 33))
    this.#calls = new Calls(this.#desk)
    this.#kinds = chance.of([["transfer"], ["relay"], ["process"], ["process"], ["transfer", "process"]])
    this.#areProgramsTame = this.#weather.trouble === 0 && chance.happens(0.6)
    desk.rules.set(relayGroup, relayRules)
    desk.rules.set(processGroup, processRules)
  }

  get committed(): number {
    return this.#desk.committed
  }

  get records(): number {
    return this.#feed.records + this.#numbers - firstOwnNumber
  }

  async run(): Promise<void> {
    const tame = this.#areProgramsTame ? ", tame programs" : ""
    const text = `seed ${this.#seed}: ${this.#kinds.join(" and ")}, weather ${JSON.stringify(this.#weather)}${tame}`
    this.#trace.note("world", text)
    this.#events.create(inputTopic, this.#chance.between(1, 3))
    for (const topic of [outputTopic, deadTopic, "b"]) this.#events.create(topic, this.#chance.between(1, 3))
    await this.#script()
    await this.#calmDown()
    await this.#end()
    this.#desk.check()
    this.#compare()
  }

  async #script(): Promise<void> {
    const chance = this.#chance
    for (let steps = chance.between(4, 24); steps > 0; steps--) {
      this.#append()
      const [kind, actor] = [chance.of(this.#kinds), this.#someActor()]
      if (this.#living(kind).length < 3 && chance.happens(0.3)) this.#start(kind)
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

  /** All is well from here on: every input has to get its outputs, and what is prepared its end. */
  async #calmDown(): Promise<void> {
    this.#trace.note("world", "calm")
    this.#plan.isOver = true
    this.#events.heal()
    // What was deleted is made again by then.
    await this.#clock.advance(6000)
    this.#isCalm = true
    const input = this.#backend.find({ stream: streamName, topic: inputTopic })
    for (let partition = 0; partition < (input?.logs.length ?? 0); partition++) {
      if (input !== undefined) this.#feed.append(input, partition, 2)
    }
    const isDone = (): boolean => this.#missing() === undefined
    const untilMs = this.#clock.monotonicMs() + calmMs
    do {
      for (const kind of this.#kinds) if (this.#living(kind).length === 0) this.#start(kind)
      this.#completeWhatIsLeft()
      // The clock goes as far as a timer.
      const end = this.#clock.setTimer(lookMs, () => {})
      await this.#clock.runUntil(isDone, lookMs)
      end.cancel()
    } while (!isDone() && !this.#clock.isExhausted && this.#clock.monotonicMs() < untilMs)
    const text = this.#missing()
    if (text !== undefined) this.#violate("nothing stalls", text)
  }

  /** Whoever has prepared something is gone: another one comes for it. */
  #completeWhatIsLeft(): void {
    const left = this.#prepared
    const isKnown = left === undefined || this.#living("transfer").some((actor) => actor.transactionalId === left)
    if (!isKnown) this.#start("transfer", left)
  }

  /** The id of a transaction that is prepared. */
  get #prepared(): string | undefined {
    return this.#backend.coordination.open.find(({ state }) => state === "prepared")?.transactionalId
  }

  /** What is left to do, in words. */
  #missing(): string | undefined {
    if (this.#prepared !== undefined) return `a prepared transaction of ${this.#prepared} is left`
    const groups = this.#kinds.flatMap((kind) =>
      kind === "relay" ? [relayGroup] : kind === "process" ? [processGroup] : [],
    )
    const input = this.#backend.find({ stream: streamName, topic: inputTopic })
    for (const group of groups) {
      for (const [partition, log] of (input?.logs ?? []).entries()) {
        const place = { stream: streamName, topic: inputTopic, partition }
        const stored = Number(this.#backend.offsets.peek({ kind: "group", name: group }, place) ?? 0)
        if (log.visibleFrom(stored) >= log.records.length) continue
        return `${group} has stored ${stored} of ${inputTopic}/${partition}, of ${log.records.length}, after ${calmMs} ms of calm`
      }
    }
    return undefined
  }

  async #end(): Promise<void> {
    const chance = this.#chance
    this.#trace.note("world", "the end")
    let open = 0
    for (const { actor } of this.#actors) {
      if (!actor.program.isAlive) continue
      open++
      const ending = actor.end(chance.of(["shutdown", "close"] as const), endMs).finally(() => {
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
    for (const { actor } of this.#actors) actor.program.kill()
    await this.#clock.runUntil(() => this.#clock.timers === 0, Number.POSITIVE_INFINITY)
  }

  /** Of the whole log: no input has more outputs than it is to have, whatever its history was. */
  #compare(): void {
    for (const rules of this.#kinds.map((kind) =>
      kind === "relay" ? relayRules : kind === "process" ? processRules : [],
    )) {
      for (const { topic, outputs } of rules) {
        const counts = this.#events.countsIn(topic)
        for (const [number, count] of counts) {
          if (number >= firstOwnNumber || count <= outputs(number)) continue
          this.#violate(
            "one output for each input",
            `input ${number} has ${count} records in ${topic}, of ${outputs(number)}`,
          )
        }
      }
    }
  }

  #append(): void {
    const chance = this.#chance
    const topic = this.#backend.find({ stream: streamName, topic: inputTopic })
    if (topic === undefined || this.#kinds.every((kind) => kind === "transfer")) return
    for (let times = chance.below(3); times > 0; times--) {
      const count = chance.weighted([
        [5, chance.between(1, 4)],
        [1, chance.between(4, 30)],
      ])
      const partition = chance.below(topic.logs.length)
      this.#feed.append(topic, partition, count)
      if (this.#backend.manifest.read.holes && chance.happens(0.2)) this.#events.blot(topic, partition, count)
    }
  }

  #start(kind: Kind, transactionalId?: string): void {
    const { clock, backend, seed } = { clock: this.#clock, backend: this.#backend, seed: this.#seed }
    const number = this.#actors.length
    const program = new SimProgram(number, { clock, backend, seed })
    const stage: TransactionStage = {
      desk: this.#desk,
      calls: this.#calls,
      isTame: () => this.#isCalm || this.#areProgramsTame,
      outputs: [outputTopic, "b"],
      freshNumber: () => ++this.#numbers,
    }
    const actor = this.#actor(kind, { program, stage, transactionalId })
    this.#actors.push({ actor, kind })
    this.#desk.note(program, `begins: ${kind} as ${actor.transactionalId}`)
    // It never rejects.
    void actor.live()
  }

  #actor(
    kind: Kind,
    of: {
      readonly program: SimProgram
      readonly stage: TransactionStage
      readonly transactionalId: string | undefined
    },
  ): TransactionActor {
    const { program, stage, transactionalId } = of
    if (kind === "process") return new ProcessorActor(program, stage, "")
    if (kind === "relay") return new RelayActor(program, stage, `relay-${program.id}`)
    // Two of them are one another's zombies.
    const ids = this.#areProgramsTame ? [`transfer-${program.id}`] : ["transfer-0", "transfer-0", "transfer-1"]
    return new TransferActor(program, stage, transactionalId ?? this.#chance.of(ids))
  }

  #living(kind: Kind): readonly TransactionActor[] {
    return this.#actors
      .filter((one) => one.kind === kind && one.actor.program.isAlive && !one.actor.isOver)
      .map(({ actor }) => actor)
  }

  #someActor(): TransactionActor | undefined {
    const living = this.#actors.filter(({ actor }) => actor.program.isAlive && !actor.isOver)
    return living.length === 0 ? undefined : this.#chance.of(living).actor
  }

  #accident(actor: TransactionActor): void {
    const chance = this.#chance
    const { program } = actor
    const what = chance.weighted([
      [4, "kill"],
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
      void actor.end(chance.of(["shutdown", "close"]), chance.of([0, 100, 5000, endMs]))
    }
  }
}
