import type { TopicPartition } from "@millrace/contract"
import { type ProgramWorld, SimProgram } from "../sim-program.ts"
import type { StoreFact } from "./facts.ts"
import { LaneView } from "./lane-view.ts"
import type { Owner } from "./owner.ts"

/** One simulated process with one client and one consumer. */
export class Program extends SimProgram {
  readonly owner: Owner
  readonly lanes: Map<string, LaneView> = new Map()
  /** What the backend last told about the progress of a partition; `undefined`: there is none. */
  readonly loads: Map<string, number | undefined> = new Map()
  /** What it told while the program asked a question of its own: the answer to that, or the start that its core looked up meanwhile. */
  readonly asked: Map<string, number> = new Map()
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

  constructor(id: number, owner: Owner, world: ProgramWorld) {
    super(id, world)
    this.owner = owner
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
}

export function placeKey({ stream, topic, partition }: TopicPartition): string {
  return `${stream}/${topic}/${partition}`
}
