import { type Client, openClient } from "@millrace/core"
import type { FaultyBackend } from "./backend/faulty-backend.ts"
import type { FaultySession } from "./backend/faulty-session.ts"
import { Chance } from "./chance.ts"
import type { SimClock } from "./sim-clock.ts"
import { ProcessClock } from "./sim-process.ts"

/** Where a program lives. */
export interface ProgramWorld {
  readonly clock: SimClock
  readonly backend: FaultyBackend
  readonly seed: number
}

/** One simulated process with one client: it may be killed, or not get to run for a while. */
export class SimProgram {
  readonly id: number
  /** What the client has for a clock: nothing of it may be left at the end. */
  readonly clock: ProcessClock
  /** The program's own. */
  readonly ownClock: ProcessClock
  readonly session: FaultySession
  readonly client: Client
  readonly chance: Chance
  isAlive = true
  /** It is ending with little time, or while nothing can be stored. */
  endsInHaste = false

  constructor(id: number, world: ProgramWorld) {
    this.id = id
    this.clock = new ProcessClock(world.clock)
    this.ownClock = new ProcessClock(world.clock)
    this.session = world.backend.connect()
    this.chance = new Chance(world.seed, 1000 + id)
    this.client = openClient(this.session, {}, { clock: this.clock, random: new Chance(world.seed, 5000 + id).random })
  }

  /** What it has left behind, in words: to be asked after an end in order, when there may be nothing. */
  get left(): string[] {
    const left: string[] = []
    if (this.clock.timers > 0) left.push(`${this.clock.timers} timers of program ${this.id} are left`)
    if (this.session.open > 0) left.push(`${this.session.open} requests of program ${this.id} are left`)
    return left
  }

  /** Between two events everything of it stops. */
  kill(): void {
    this.isAlive = false
    this.clock.kill()
    this.ownClock.kill()
    this.session.abandon()
  }

  /** It does not get to run for so long. */
  stall(ms: number): void {
    this.clock.stall(ms)
    this.ownClock.stall(ms)
    this.session.stall(ms)
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.ownClock.setTimer(ms, resolve))
  }
}
