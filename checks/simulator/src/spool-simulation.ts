/** A program with a spool, killed and ended again and again, over a backend with faults; its spool lies in a second, simulated log. */
import { type Client, openClient } from "@millrace/core"
import { FaultyBackend } from "./backend/faulty-backend.ts"
import type { FaultySession } from "./backend/faulty-session.ts"
import { manifestOf } from "./backend/manifests.ts"
import { Chance } from "./chance.ts"
import type { ContractWatch } from "./invariants/contract-watch.ts"
import { ProcessClock } from "./sim-process.ts"
import { SpoolDisk } from "./spool-disk.ts"
import type { WeatherPlan } from "./weather.ts"
import type { BackendEvents } from "./workload/backend-events.ts"
import { numberIn } from "./workload/history.ts"
import { SpoolActor, type SpoolHandling, type SpoolProgram } from "./workload/spool-actor.ts"
import type { World } from "./workload/world.ts"

/** One process that runs the program, from its start to its end or its death. */
interface Life {
  readonly clock: ProcessClock
  readonly sessions: readonly FaultySession[]
  readonly client: Client
  readonly actor: SpoolActor
}

/** What the simulation of a spool needs of the simulation around it. */
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

/** Lives that end with a kill or a shutdown, and a last one that brings everything to its end. */
export class SpoolSimulation {
  readonly #world: World
  readonly #parts: SpoolParts
  readonly #store: FaultyBackend
  readonly #disk: SpoolDisk
  readonly #program: SpoolProgram
  readonly #kills: number
  readonly #diskTrouble: number
  readonly #outagesOnly: boolean
  #lives = 0

  constructor(world: World, parts: SpoolParts) {
    const { chance, history, clock } = world
    this.#world = world
    this.#parts = parts
    this.#kills = chance.of([0, 1, 2, 3, 4])
    this.#diskTrouble = chance.of([0, 0, 0.1, 0.3])
    this.#outagesOnly = chance.happens(0.4)
    parts.plan.mayLast = chance.happens(0.5)
    // A record that was refused loses its place when a process dies before that is written down; replaced topics refuse without a word.
    const isOrdered = this.#kills === 0 || this.#outagesOnly
    const lane = history.addLane("spool", { mayExpire: true, isOrderedByKey: true, isSpooled: true, isOrdered })
    this.#program = programOf(world, lane)
    this.#disk = new SpoolDisk(new Chance(parts.seed, 3), chance.of([0, 2]), world.trace)
    this.#store = new FaultyBackend({
      clock,
      manifest: manifestOf("sequence", { payloadBytes: 100_000 }),
      faults: this.#disk,
    })
    const { handling, background, partitions } = this.#program
    const text = JSON.stringify({ kills: this.#kills, partitions, ...background })
    world.trace.note("world", `spool of ${world.topics.join(" and ")}: ${handling} ${text}`)
  }

  /** Runs them all. False when one does not come to its end. */
  async run(): Promise<boolean> {
    const { chance, clock, backend, trace } = this.#world
    for (let i = 0; i < this.#kills; i++) {
      const life = this.#begin()
      await this.#script(life, { mayBreak: true })
      await clock.advance(chance.of([0, 0, 1, 7, 60, 1500]))
      if (chance.happens(0.6)) await this.#kill(life)
      else if (!(await this.#shutDown(life, chance.of([0, 0, 50, 5000])))) return false
    }
    this.#disk.isFull = false
    this.#disk.breaks = false
    const last = this.#begin()
    // A spool that cannot be opened, for want of room, ends the life of its producer.
    const opened = last.actor.open()
    let isOpen = false
    const follow = (): void => {
      isOpen = true
    }
    opened.then(follow, follow)
    if (!(await clock.runUntil(() => isOpen, longestMs))) return false
    await this.#script(last, { mayBreak: false })
    trace.note("world", "the last life")
    this.#disk.isFull = false
    this.#disk.breaks = false
    this.#parts.plan.isOver = true
    backend.restore()
    return await this.#finish(last)
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
    return { clock, sessions, client, actor: new SpoolActor(this.#world, this.#program, { client, clock }) }
  }

  async #script({ actor }: Life, { mayBreak }: { readonly mayBreak: boolean }): Promise<void> {
    const { chance, clock, trace } = this.#world
    const { eventRate, events } = this.#parts
    for (let steps = chance.between(1, 12); steps > 0; steps--) {
      actor.step()
      if (chance.happens(eventRate)) {
        if (this.#outagesOnly) events.outage()
        else events.happen({ jumps: false })
      }
      if (chance.happens(this.#diskTrouble)) {
        if (mayBreak && chance.happens(0.05)) this.#disk.breaks = true
        else this.#disk.isFull = !this.#disk.isFull
        trace.note("store", this.#disk.breaks ? "will break" : this.#disk.isFull ? "is full" : "has room")
      }
      if (chance.happens(0.6)) await clock.advance(chance.of([0, 1, 5, 40, 400]))
    }
  }

  /** Between two events everything of the process stops; what was on its way to the disk or the backend may still arrive. */
  async #kill({ clock, sessions, actor }: Life): Promise<void> {
    const { trace, chance } = this.#world
    trace.note("world", "the process is killed")
    this.#count(actor)
    clock.kill()
    this.#disk.survivors = chance.of([0, 0, 1, 2, 5])
    for (const session of sessions) session.abandon()
    this.#disk.survivors = 0
    this.#parts.watch.forget()
    actor.cut()
    await this.#world.clock.advance(chance.of([501, 501, 30_000]))
  }

  /** The program ends in order, with little time: what it could not deliver stays in the spool. */
  async #shutDown(life: Life, timeoutMs: number): Promise<boolean> {
    const { clock, trace, chance } = this.#world
    if (chance.happens(0.5)) {
      life.actor.sendAndConfirm()
      if (chance.happens(0.5)) await clock.advance(1)
    }
    trace.note("world", `the process shuts down within ${timeoutMs} ms`)
    let isDone = false
    const ending = life.actor.shutdown(timeoutMs).then(() => life.client.close({ timeoutMs: 0 }))
    ending.then(
      () => {
        isDone = true
      },
      (error: unknown) => trace.note("client", `the end failed: ${String(error)}`),
    )
    if (!(await clock.runUntil(() => isDone, longestMs))) return false
    // A spool that was still being opened at the deadline is closed as soon as that is done.
    await clock.advance(500)
    // What was told while the disk was full is written down nowhere.
    if (this.#disk.isFull) life.actor.cut()
    else life.actor.end()
    this.#count(life.actor)
    this.#checkLeft(life)
    life.clock.kill()
    await clock.advance(chance.of([501, 30_000]))
    return true
  }

  /** Everything is delivered, or handed over, or put aside; what was put aside is looked at. */
  async #finish(life: Life): Promise<boolean> {
    const { clock, trace, history, violate } = this.#worldParts()
    const { actor, client } = life
    let isDone = false
    const look = async (): Promise<void> => {
      await actor.flush()
      const { spool } = actor.producer
      const depth = spool?.depth()
      for await (const { record } of spool?.refused() ?? []) history.aside.push(numberIn(record.payload))
      const { records = 0, bytes = 0, refused = 0 } = depth ?? {}
      if (records !== 0 || bytes !== 0 || refused !== history.aside.length) {
        violate(
          "the spool's depth is true",
          `${records} records of ${bytes} bytes wait in the end, ${refused} are refused`,
        )
      }
      await actor.shutdown(longestMs)
      await client.close()
    }
    look().then(
      () => {
        isDone = true
      },
      (error: unknown) => {
        isDone = true
        trace.note("client", `the end failed: ${String(error)}`)
        violate("everything ends", `the last life failed: ${String(error)}`)
      },
    )
    if (!(await clock.runUntil(() => isDone, 2 * longestMs))) return false
    this.#count(actor)
    this.#checkLeft(life)
    life.clock.kill()
    return true
  }

  #worldParts(): Pick<World, "clock" | "trace" | "history"> & { violate: World["violate"] } {
    const world = this.#world
    const { clock, trace, history } = world
    return { clock, trace, history, violate: (invariant, text) => world.violate(invariant, text) }
  }

  #checkLeft({ clock, sessions }: Life): void {
    const open = sessions.reduce((sum, session) => sum + session.open, 0)
    if (clock.timers > 0) this.#world.violate("nothing is left", `${clock.timers} timers are left`)
    if (open > 0) this.#world.violate("nothing is left", `${open} requests are left`)
    if (this.#parts.watch.kept > 0)
      this.#world.violate("nothing is left", `${this.#parts.watch.kept} batches were not released`)
  }

  #count({ producer }: SpoolActor): void {
    this.#world.history.possiblyDoubled += producer.spool?.depth().possiblyDoubled ?? 0
  }
}

function programOf({ chance }: World, lane: SpoolProgram["lane"]): SpoolProgram {
  const failureMode = chance.of(["block", "blockWithTimeout", "failImmediately"] as const)
  const maxSpoolBytes = chance.of([Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 700, 3000])
  const maxBufferBytes = chance.of([undefined, undefined, 500, 2000])
  return {
    lane,
    maxSpoolBytes,
    handling: chance.of<SpoolHandling>(["none", "take", "throw", "wait"]),
    partitions: chance.between(1, 3),
    background: {
      batchLength: chance.of([1, 5, 1000]),
      failureMode,
      ...(failureMode === "blockWithTimeout" ? { blockTimeoutMs: chance.of([1, 100, 5000]) } : {}),
      ...(maxBufferBytes === undefined ? {} : { maxBufferBytes }),
      spool: {
        directory: "spool",
        ...(Number.isFinite(maxSpoolBytes) ? { maxSpoolBytes } : {}),
        ...(chance.happens(0.3) ? { onExpired: "report" } : {}),
      },
    },
  }
}
