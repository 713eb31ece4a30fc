/** One simulated life of programs that work in transactions, all of it decided by one seed. */
import { FaultyBackend } from "../backend/faulty-backend.ts"
import { manifestOf } from "../backend/manifests.ts"
import { unwatched } from "../backend/reading-watch.ts"
import { Chance } from "../chance.ts"
import { ProgramCrew } from "../program-crew.ts"
import { RecordFeed } from "../reading/record-feed.ts"
import { SimProgram } from "../sim-program.ts"
import type { SimulationOptions, SimulationResult } from "../simulation.ts"
import { type SimulatedLife, SimulationFrame } from "../simulation-frame.ts"
import { streamName } from "../workload/world.ts"
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

/** Records that programs make themselves have numbers from here on. */
const firstOwnNumber = 1_000_000

/** What a seed's programs do. */
type Kind = "transfer" | "relay" | "process"

/** Runs one seed. It never rejects; what breaks a promise is in `violations`. One at a time in a process. */
export async function simulateTransactions(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const frame = new SimulationFrame(seed, 30, options)
  return await frame.run(new TransactionSimulation(frame))
}

class TransactionSimulation implements SimulatedLife {
  readonly #frame: SimulationFrame
  readonly #plan: TransactionPlan
  readonly #desk: TransactionDesk
  readonly #backend: FaultyBackend
  readonly #events: TransactionEvents
  readonly #feed: RecordFeed
  readonly #crew: ProgramCrew<"shutdown" | "close", TransactionActor>
  readonly #kinds: readonly Kind[]
  readonly #areProgramsTame: boolean
  readonly #kindOf = new Map<TransactionActor, Kind>()
  #isCalm = false
  #numbers = firstOwnNumber

  constructor(frame: SimulationFrame) {
    const { seed, clock, trace, chance, weather } = frame
    this.#frame = frame
    this.#plan = new TransactionPlan(new Chance(seed, 31), weather)
    this.#desk = new TransactionDesk(frame)
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
    this.#crew = new ProgramCrew(frame, { kills: 4, early: ["shutdown", "close"], last: ["shutdown", "close"] })
    this.#kinds = chance.of([["transfer"], ["relay"], ["process"], ["process"], ["transfer", "process"]])
    this.#areProgramsTame = weather.trouble === 0 && chance.happens(0.6)
    desk.rules.set(relayGroup, relayRules)
    desk.rules.set(processGroup, processRules)
  }

  get calls(): number {
    return this.#desk.committed
  }

  get records(): number {
    return this.#feed.records + this.#numbers - firstOwnNumber
  }

  async run(): Promise<void> {
    const tame = this.#areProgramsTame ? ", tame programs" : ""
    const text = `seed ${this.#frame.seed}: ${this.#kinds.join(" and ")}, weather ${JSON.stringify(this.#frame.weather)}${tame}`
    this.#frame.trace.note("world", text)
    this.#events.create(inputTopic, this.#frame.chance.between(1, 3))
    for (const topic of [outputTopic, deadTopic, "b"]) this.#events.create(topic, this.#frame.chance.between(1, 3))
    await this.#script()
    await this.#calmDown()
    await this.#crew.end()
    this.#desk.check()
    this.#compare()
  }

  async #script(): Promise<void> {
    const chance = this.#frame.chance
    for (let steps = chance.between(4, 24); steps > 0; steps--) {
      this.#append()
      const [kind, actor] = [chance.of(this.#kinds), this.#crew.some()]
      if (this.#living(kind).length < 3 && chance.happens(0.3)) this.#start(kind)
      if (actor !== undefined && chance.happens(this.#frame.weather.accidents)) this.#crew.befall(actor)
      if (chance.happens(this.#frame.weather.events)) this.#events.happen()
      await this.#frame.pass()
    }
  }

  /** All is well from here on: every input has to get its outputs, and what is prepared its end. */
  async #calmDown(): Promise<void> {
    this.#frame.trace.note("world", "calm")
    this.#plan.isOver = true
    this.#events.heal()
    // What was deleted is made again by then.
    await this.#frame.clock.advance(6000)
    this.#isCalm = true
    const input = this.#backend.find({ stream: streamName, topic: inputTopic })
    for (let partition = 0; partition < (input?.logs.length ?? 0); partition++) {
      if (input !== undefined) this.#feed.append(input, partition, 2)
    }
    const isDone = (): boolean => this.#missing() === undefined
    await this.#crew.finish(isDone, calmMs, () => {
      for (const kind of this.#kinds) if (this.#living(kind).length === 0) this.#start(kind)
      this.#completeWhatIsLeft()
    })
    const text = this.#missing()
    if (text !== undefined) this.#frame.violate("nothing stalls", text)
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

  /** Of the whole log: no input has more outputs than it is to have, whatever its history was. */
  #compare(): void {
    for (const rules of this.#kinds.map((kind) =>
      kind === "relay" ? relayRules : kind === "process" ? processRules : [],
    )) {
      for (const { topic, outputs } of rules) {
        const counts = this.#events.countsIn(topic)
        for (const [number, count] of counts) {
          if (number >= firstOwnNumber || count <= outputs(number)) continue
          this.#frame.violate(
            "one output for each input",
            `input ${number} has ${count} records in ${topic}, of ${outputs(number)}`,
          )
        }
      }
    }
  }

  #append(): void {
    const chance = this.#frame.chance
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
    const { clock, seed } = this.#frame
    const number = this.#crew.members.length
    const program = new SimProgram(number, { clock, backend: this.#backend, seed })
    const stage: TransactionStage = {
      desk: this.#desk,
      calls: this.#crew.calls,
      isTame: () => this.#isCalm || this.#areProgramsTame,
      outputs: [outputTopic, "b"],
      freshNumber: () => ++this.#numbers,
    }
    const actor = this.#actor(kind, { program, stage, transactionalId })
    this.#kindOf.set(actor, kind)
    this.#crew.begin(actor, `begins: ${kind} as ${actor.transactionalId}`)
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
    return new TransferActor(program, stage, transactionalId ?? this.#frame.chance.of(ids))
  }

  #living(kind: Kind): readonly TransactionActor[] {
    return this.#crew.living.filter((actor) => this.#kindOf.get(actor) === kind)
  }
}
