import type { QueueConsumerOptions, QueueOptions } from "@millrace/core"
import type { QueueToken, SimQueue } from "../backend/sim-queue.ts"
import { type ProgramWorld, SimProgram } from "../sim-program.ts"
import type { HeardDelivery } from "./queue-ledger.ts"

/** The queue that programs take from, and how it is made. */
export interface QueuePlace {
  readonly topic: string
  readonly queue: string
  readonly options: QueueOptions
  readonly consumer: QueueConsumerOptions
  /** Where messages of which the deliveries are used up go. */
  readonly deadTopic: string | undefined
}

/** One simulated process that takes from a queue. */
export class QueueProgram extends SimProgram {
  readonly place: QueuePlace
  /** By queue, message and delivery. */
  readonly heard: Map<string, HeardDelivery> = new Map()
  readonly byToken: Map<QueueToken, SimQueue> = new Map()
  /** Settlements that it was told to count. */
  readonly counted: Set<string> = new Set()
  handedOut = 0
  /** When its end began, on the monotonic clock. */
  endingMs: number = Number.POSITIVE_INFINITY

  constructor(id: number, place: QueuePlace, world: ProgramWorld) {
    super(id, world)
    this.place = place
  }
}
