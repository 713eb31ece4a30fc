import {
  InvalidError,
  NotFoundError,
  type QueueDescription,
  type QueueSpec,
  type QueueStart,
  type Settlement,
} from "@millrace/contract"
import type { PartitionLog } from "./partition-log.ts"
import type { SimTopic } from "./sim-topic.ts"

/** One delivery of one message. */
export interface QueueToken {
  readonly partition: number
  readonly lineage: string
  readonly offset: number
  /** 1 at the first. */
  readonly deliveries: number
}

/** What a queue asks of the backend around it. */
export interface QueueHost {
  readonly nowMs: number
  /** The topic that it was made over, if that is still there. */
  readonly topic: () => SimTopic | undefined
}

/** A message that was handed out and not settled. */
interface Pending {
  readonly token: QueueToken
  /** Somebody holds it, until `dueMs`; else it waits until then to be handed out again. */
  readonly isHeld: boolean
  readonly dueMs: number
}

interface Lane {
  readonly partition: number
  readonly lineage: string
  readonly log: PartitionLog
  /** Where the queue began. */
  readonly start: number
  /** What was never handed out begins here. */
  next: number
  readonly pending: Map<number, Pending>
}

/**
 * A work queue as a backend keeps it: what is handed out, to be handed out again, and settled. A machine that crashes may
 * undo what was settled without a confirmation. No requests, no faults.
 */
export class SimQueue {
  readonly name: string
  readonly spec: QueueSpec
  readonly #host: QueueHost
  #lanes: Lane[] = []
  /** Settled, and not yet as durable as a confirmation says. */
  #soft: { readonly lane: Lane; readonly pending: Pending }[] = []
  #isDeleted = false

  constructor(name: string, spec: QueueSpec, host: QueueHost) {
    this.name = name
    this.spec = spec
    this.#host = host
    const topic = host.topic()
    this.#lanes = (topic?.logs ?? []).map((log, partition) => this.#lane(partition, log, startOf(log, spec.startAt)))
  }

  /** Nobody can use it any more. */
  delete(): void {
    this.#isDeleted = true
  }

  /** @throws NotFoundError when it or its topic is gone */
  check(): SimTopic {
    const topic = this.#host.topic()
    if (topic === undefined) throw new NotFoundError(`the topic of queue "${this.name}" is gone`)
    if (this.#isDeleted) throw new NotFoundError(`queue "${this.name}" does not exist`)
    return topic
  }

  /** @throws InvalidError unless it was made with these settings */
  checkSpec(other: QueueSpec): void {
    const differing = (Object.keys(other) as (keyof QueueSpec)[]).filter(
      (key) => key !== "startAt" && text(this.spec[key]) !== text(other[key]),
    )
    if (differing.length > 0) throw new InvalidError(`queue "${this.name}" has another ${differing.join(", ")}`)
  }

  /** Hands messages out: those that are due again, in the order of that, then new ones. @throws NotFoundError */
  take(maxMessages: number): { readonly token: QueueToken; readonly log: PartitionLog }[] {
    this.#follow()
    const taken: { readonly token: QueueToken; readonly log: PartitionLog }[] = []
    const due = this.#lanes
      .flatMap((lane) => [...lane.pending.values()].map((pending) => ({ lane, pending })))
      .filter(({ pending }) => pending.dueMs <= this.#host.nowMs)
      .sort((a, b) => this.#order(a.pending, b.pending))
    for (const { lane, pending } of due) {
      if (taken.length >= maxMessages) return taken
      taken.push({ log: lane.log, token: this.#hand(lane, pending.token.offset, pending.token.deliveries + 1) })
    }
    for (const lane of this.#lanes) {
      lane.next = lane.log.visibleFrom(lane.next)
      while (lane.next < lane.log.records.length && taken.length < maxMessages && this.#hasRoom) {
        taken.push({ log: lane.log, token: this.#hand(lane, lane.next, 1) })
        lane.next = lane.log.visibleFrom(lane.next + 1)
      }
    }
    return taken
  }

  /** When something is due to be handed out again next, on the monotonic clock; `undefined`: nothing is. */
  get nextDueMs(): number | undefined {
    let least: number | undefined
    for (const { pending } of this.#lanes) {
      for (const { dueMs } of pending.values()) if (least === undefined || dueMs < least) least = dueMs
    }
    return least
  }

  /** @returns whether it counts @throws NotFoundError */
  settle({ token, verdict, delayMs = 0 }: Settlement, confirm: boolean): boolean {
    this.#follow()
    const { partition, lineage, offset, deliveries } = token as QueueToken
    const lane = this.#lanes[partition]
    const pending = lane?.lineage === lineage ? lane.pending.get(offset) : undefined
    const counts = pending?.isHeld === true && pending.token.deliveries === deliveries
    const { nowMs } = this.#host
    if (lane !== undefined && pending !== undefined && counts) {
      if (verdict === "nak") lane.pending.set(offset, { ...pending, isHeld: false, dueMs: nowMs + delayMs })
      else if (verdict === "inProgress")
        lane.pending.set(offset, { ...pending, dueMs: nowMs + this.waitMs(deliveries) })
      else this.#finish(lane, offset, verdict)
    }
    if (confirm) this.#soft = []
    return counts
  }

  /** The wait of a delivery. */
  waitMs(deliveries: number): number {
    const { backoffMs, ackWaitMs } = this.spec
    return backoffMs[Math.min(deliveries, backoffMs.length) - 1] ?? ackWaitMs
  }

  /** The machine has crashed: what nobody was told to be durable comes back. */
  crash(): void {
    for (const { lane, pending } of this.#soft) {
      if (!this.#lanes.includes(lane) || pending.token.offset < lane.log.first) continue
      lane.pending.set(pending.token.offset, { ...pending, isHeld: false, dueMs: this.#host.nowMs })
    }
    this.#soft = []
  }

  /** Deliveries that an ack of this one covers beside it. */
  coveredBy({ partition, lineage, offset }: QueueToken): readonly QueueToken[] {
    const lane = this.#lanes[partition]
    if (this.spec.ackPolicy !== "all" || lane?.lineage !== lineage) return []
    return [...lane.pending.values()].map(({ token }) => token).filter((token) => token.offset < offset)
  }

  /** What is handed out and not settled, and what was never handed out. @throws NotFoundError */
  get left(): { readonly pending: readonly QueueToken[]; readonly undelivered: number } {
    this.#follow()
    const pending = this.#lanes.flatMap((lane) => [...lane.pending.values()].map(({ token }) => token))
    const undelivered = this.#lanes.reduce((sum, { log, next }) => {
      let count = 0
      for (let at = log.visibleFrom(next); at < log.records.length; at = log.visibleFrom(at + 1)) count++
      return sum + count
    }, 0)
    return { pending, undelivered }
  }

  /** Every message that it is to hand out or has handed out, of the present histories. @throws NotFoundError */
  get messages(): readonly { readonly partition: number; readonly offset: number; readonly log: PartitionLog }[] {
    this.#follow()
    return this.#lanes.flatMap(({ partition, log, start }) => {
      const found: { readonly partition: number; readonly offset: number; readonly log: PartitionLog }[] = []
      for (let offset = log.visibleFrom(start); offset < log.records.length; offset = log.visibleFrom(offset + 1)) {
        found.push({ partition, offset, log })
      }
      return found
    })
  }

  describe(): QueueDescription {
    const { stream, topic } = this.check().description
    this.#follow()
    const { nowMs } = this.#host
    const pending = this.#lanes.flatMap((lane) => [...lane.pending.values()])
    return {
      stream,
      topic,
      queue: this.name,
      spec: this.spec,
      undelivered: BigInt(this.left.undelivered),
      ackPending: pending.length,
      redelivered: pending.filter(({ token, isHeld }) => token.deliveries > 1 || !isHeld).length,
      delayed: pending.filter(({ isHeld, dueMs }) => !isHeld || dueMs <= nowMs).length,
      partitions: this.#lanes.map(({ partition, next, pending: open }) => ({
        partition,
        floor: BigInt(Math.min(next, ...open.keys())),
        next: BigInt(next),
      })),
    }
  }

  /** What fell due first comes first; where an ack covers those before it, the first of them. */
  #order(a: Pending, b: Pending): number {
    if (this.spec.ackPolicy !== "all") return a.dueMs - b.dueMs
    return a.token.partition - b.token.partition || a.token.offset - b.token.offset
  }

  get #hasRoom(): boolean {
    const { ackPolicy, maxAckPending = Number.POSITIVE_INFINITY } = this.spec
    return ackPolicy === "none" || this.#lanes.reduce((sum, { pending }) => sum + pending.size, 0) < maxAckPending
  }

  #hand(lane: Lane, offset: number, deliveries: number): QueueToken {
    const token: QueueToken = { partition: lane.partition, lineage: lane.lineage, offset, deliveries }
    const dueMs = this.#host.nowMs + this.waitMs(deliveries)
    if (this.spec.ackPolicy !== "none") lane.pending.set(offset, { token, isHeld: true, dueMs })
    return token
  }

  #finish(lane: Lane, offset: number, verdict: Settlement["verdict"]): void {
    const isRange = verdict === "ack" && this.spec.ackPolicy === "all"
    for (const [at, pending] of [...lane.pending]) {
      if (at !== offset && !(isRange && at < offset)) continue
      lane.pending.delete(at)
      this.#soft.push({ lane, pending })
    }
  }

  /** Takes note of what became of the topic: purged, trimmed, grown. @throws NotFoundError */
  #follow(): void {
    const topic = this.check()
    this.#lanes = topic.logs.map((log, partition) => {
      const lane = this.#lanes[partition]
      if (lane === undefined || lane.log !== log) return this.#lane(partition, log, log.first)
      for (const offset of lane.pending.keys()) {
        if (offset < log.first || log.hidden.has(offset)) lane.pending.delete(offset)
      }
      return lane
    })
  }

  #lane(partition: number, log: PartitionLog, next: number): Lane {
    const lineage = this.#host.topic()?.description.lineage ?? ""
    return { partition, lineage, log, start: next, next, pending: new Map() }
  }
}

function startOf(log: PartitionLog, at: QueueStart): number {
  const end = log.records.length
  if (at.kind === "offset") return Math.min(end, Math.max(log.first, Number(at.value)))
  if (at.kind === "first") return log.first
  if (at.kind === "last") return Math.max(log.first, end - 1)
  if (at.kind !== "timestampMicros") return end
  const index = log.records.findIndex(({ timestampMicros }) => timestampMicros >= at.value)
  return index === -1 ? end : Math.max(log.first, index)
}

function text(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) => (typeof one === "bigint" ? `${one}` : one)) ?? "absent"
}
