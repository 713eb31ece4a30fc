import type { TopicPartition } from "@millrace/contract"
import { type Client, openClient } from "@millrace/core"
import type { FaultyBackend } from "../backend/faulty-backend.ts"
import type { FaultySession } from "../backend/faulty-session.ts"
import { Chance } from "../chance.ts"
import type { SimClock } from "../sim-clock.ts"
import { ProcessClock } from "../sim-process.ts"
import type { StoreFact } from "./facts.ts"
import { LaneView } from "./lane-view.ts"
import type { Owner } from "./owner.ts"

/** One simulated process with one client and one consumer: it may be killed, or not get to run for a while. */
export class Program {
  readonly id: number
  readonly owner: Owner
  /** What the client has for a clock: nothing of it may be left at the end. */
  readonly clock: ProcessClock
  /** The program's own. */
  readonly ownClock: ProcessClock
  readonly session: FaultySession
  readonly client: Client
  readonly chance: Chance
  readonly lanes: Map<string, LaneView> = new Map()
  /** What the backend last told about the progress of a partition; `undefined`: there is none. */
  readonly loads: Map<string, number | undefined> = new Map()
  /** What it last told about the anchor that reading is to begin at. */
  readonly anchors: Map<string, number> = new Map()
  /** Until it can listen: what its core has asked to store. Steps that cover it are told to the first listener. */
  early: StoreFact[] | undefined = []
  /** It asks about its progress, which says nothing about where it reads. */
  isAsking = false
  /** How many messages it got. */
  handedOut = 0
  /** Handlers of `run` say what is handled, and are in this order; absent while none run. */
  running: "partition" | "key" | "none" | undefined
  /** Its loop was left early: whether its last message is handled, nobody knows. */
  isAbandoned = false
  isAlive = true
  /** It is ending with little time, or while nothing can be stored. */
  endsInHaste = false

  constructor(
    id: number,
    owner: Owner,
    world: { readonly clock: SimClock; readonly backend: FaultyBackend; readonly seed: number },
  ) {
    this.id = id
    this.owner = owner
    this.clock = new ProcessClock(world.clock)
    this.ownClock = new ProcessClock(world.clock)
    this.session = world.backend.connect()
    this.chance = new Chance(world.seed, 1000 + id)
    this.client = openClient(this.session, {}, { clock: this.clock, random: new Chance(world.seed, 5000 + id).random })
  }

  /** Whether reading begins where `startAt` says: what lies before is nobody's. */
  beginsByRule(place: TopicPartition): boolean {
    return this.loads.get(placeKey(place)) === undefined || this.replays(this.lane(place))
  }

  /** Whether what is stored says nothing about where reading begins. */
  replays({ isGainedLater }: LaneView): boolean {
    const { allowReplay, startAt = { kind: "next" } } = this.owner.options
    return allowReplay === true && startAt.kind !== "next" && !isGainedLater
  }

  lane(place: TopicPartition): LaneView {
    const key = placeKey(place)
    let lane = this.lanes.get(key)
    if (lane === undefined) {
      lane = new LaneView(place, this.owner.of.kind === "consumer")
      this.lanes.set(key, lane)
    }
    return lane
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

export function placeKey({ stream, topic, partition }: TopicPartition): string {
  return `${stream}/${topic}/${partition}`
}
