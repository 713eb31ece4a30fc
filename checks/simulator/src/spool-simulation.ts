/** A program with a spool, killed again and again, over a backend with faults; its spool lies in a second, simulated log. */
import { type Client, openClient, type Producer } from "@millrace/core"
import type { ControlRequest, Fate, FaultPlan } from "./backend/fate.ts"
import { FaultyBackend } from "./backend/faulty-backend.ts"
import type { FaultySession } from "./backend/faulty-session.ts"
import { manifestOf } from "./backend/manifests.ts"
import { Chance } from "./chance.ts"
import type { ContractWatch } from "./invariants/contract-watch.ts"
import { ProcessClock } from "./sim-process.ts"
import type { Trace } from "./trace.ts"
import type { WeatherPlan } from "./weather.ts"
import type { BackendEvents } from "./workload/backend-events.ts"
import { type CallFact, type Lane, payloadOf, type RecordFact } from "./workload/history.ts"
import { routeFor } from "./workload/route.ts"
import { streamName, type World } from "./workload/world.ts"

/** One process that runs the program, from its start to its end or its death. */
interface Life {
  readonly clock: ProcessClock
  readonly sessions: readonly FaultySession[]
  readonly client: Client
  readonly producer: Producer
  readonly calls: CallFact[]
}

/** What a life needs of the simulation around it. */
export interface SpoolParts {
  readonly seed: number
  readonly watch: ContractWatch
  readonly events: BackendEvents
  readonly plan: WeatherPlan
  readonly eventRate: number
  readonly publishTimeoutMs: number
}

/** Longer than any outage and what it makes wait, in ms. */
const longestMs = 3_600_000

/** Lives that end with a kill, and a last one that brings everything to its end. */
export class SpoolSimulation {
  readonly #world: World
  readonly #parts: SpoolParts
  readonly #lane: Lane
  readonly #store: FaultyBackend
  readonly #disk: Disk
  readonly #batchLength: number
  #lives = 0

  constructor(world: World, parts: SpoolParts) {
    this.#world = world
    this.#parts = parts
    this.#lane = world.history.addLane("spool", { mayExpire: true, isOrderedByKey: true })
    this.#batchLength = world.chance.of([1, 5, 1000])
    this.#disk = new Disk(new Chance(parts.seed, 3), world.chance.of([0, 2]), world.trace)
    this.#store = new FaultyBackend({
      clock: world.clock,
      manifest: manifestOf("sequence", { payloadBytes: 100_000 }),
      faults: this.#disk,
    })
  }

  /** Runs them all. False when the last life does not come to its end. */
  async run(): Promise<boolean> {
    const { chance, clock, backend, trace } = this.#world
    const kills = chance.between(1, 4)
    for (let i = 0; i < kills; i++) {
      const life = this.#begin()
      await this.#script(life)
      await clock.advance(chance.of([0, 1, 7, 60, 1500]))
      await this.#kill(life)
    }
    const last = this.#begin()
    await this.#script(last)
    trace.note("world", "the last life")
    this.#parts.plan.isOver = true
    backend.restore()
    const isDone = await this.#end(last)
    if (isDone && last.clock.timers > 0) this.#world.violate("nothing is left", `${last.clock.timers} timers are left`)
    last.clock.kill()
    return isDone
  }

  #begin(): Life {
    const { backend, trace } = this.#world
    const clock = new ProcessClock(this.#world.clock)
    const sessions = [backend.connect()]
    const client = openClient(
      sessions[0] as FaultySession,
      { publishTimeoutMs: this.#parts.publishTimeoutMs, publishRetryBackoffMs: 20 },
      {
        clock,
        random: new Chance(this.#parts.seed, 100 + this.#lives++).random,
        openSpool: async () => {
          const session = this.#store.connect()
          sessions.push(session)
          return session
        },
      },
    )
    trace.note("world", `life ${this.#lives} begins`)
    const background = { spool: "spool", batchLength: this.#batchLength, lingerMs: 1 }
    const producer = client.stream(streamName).topic("a").producer({ background })
    return { clock, sessions, client, producer, calls: [] }
  }

  async #script(life: Life): Promise<void> {
    const { chance, clock } = this.#world
    const { eventRate, events } = this.#parts
    for (let steps = chance.between(1, 12); steps > 0; steps--) {
      for (let i = chance.of([1, 3, 10]); i > 0; i--) this.#send(life)
      if (chance.happens(eventRate)) events.outage()
      if (chance.happens(0.6)) await clock.advance(chance.of([0, 1, 5, 40, 400]))
    }
  }

  #send(life: Life): void {
    const { history, nowMs, chance } = this.#world
    const to = { topic: "a", startedMs: nowMs, promises: "accepted" } as const
    const call = history.addCall(this.#lane, to, [chance.between(4, 40)])
    life.calls.push(call)
    const route = routeFor(chance, call.records, { partitions: false })
    this.#world.follow(call, life.producer.send(payloadOf(call.records[0] as RecordFact), route))
  }

  /** Between two events everything of the process stops; what was on its way to the disk or the backend may still arrive. */
  async #kill(life: Life): Promise<void> {
    const { trace, clock, chance } = this.#world
    trace.note("world", "the process is killed")
    life.clock.kill()
    this.#disk.survivors = chance.of([0, 0, 1, 2, 5])
    for (const session of life.sessions) session.abandon()
    this.#parts.watch.forget()
    for (const call of life.calls) call.isCut ||= call.state === "open"
    await clock.advance(chance.of([501, 501, 30_000]))
  }

  async #end({ producer, client }: Life): Promise<boolean> {
    const { clock, trace } = this.#world
    let isDone = false
    const ending = producer
      .flush()
      .then(() => producer.shutdown({ timeoutMs: longestMs }))
      .then(() => client.close())
    ending.then(
      () => {
        isDone = true
      },
      (error: unknown) => trace.note("client", `the end failed: ${String(error)}`),
    )
    return await clock.runUntil(() => isDone, 2 * longestMs)
  }
}

/**
 * Writes in the order of the calls and loses nothing that it has answered; of what it was told when its process died the first few may
 * be there, and nothing behind them.
 */
class Disk implements FaultPlan {
  /** Of the next kill: how many requests that were on their way are carried out. */
  survivors = 0
  readonly #chance: Chance
  readonly #writeMs: number
  readonly #trace: Trace

  constructor(chance: Chance, writeMs: number, trace: Trace) {
    this.#chance = chance
    this.#trace = trace
    this.#writeMs = writeMs
  }

  append(place: { readonly topic: string; readonly count: number }): Fate {
    this.#trace.note("store", `append ${place.count} to ${place.topic}`)
    return this.#write()
  }

  control(request: ControlRequest): Fate {
    this.#trace.note("store", request)
    return this.#write()
  }

  #write(): Fate {
    return { kind: "answer", arriveMs: this.#writeMs, answerMs: this.#chance.below(3) }
  }

  straggles(): number | undefined {
    return this.survivors-- > 0 ? 0 : undefined
  }
}
