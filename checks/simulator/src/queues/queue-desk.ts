import type { MillraceError, Settlement } from "@millrace/contract"
import type { FaultySession } from "../backend/faulty-session.ts"
import type { PartitionLog } from "../backend/partition-log.ts"
import type { QueueWatch } from "../backend/queue-watch.ts"
import type { QueueToken, SimQueue } from "../backend/sim-queue.ts"
import { ProgramDesk } from "../program-desk.ts"
import { numberIn } from "../record-number.ts"
import { type HeardDelivery, QueueLedger } from "./queue-ledger.ts"
import type { QueuePlace, QueueProgram } from "./queue-program.ts"

/** What a program is told of a message, as far as the books need it. */
export interface GivenMessage {
  readonly payload: Uint8Array | null
  readonly deliveries: number
}

/** Rounding, in ms. */
const shortestMs = 0.001

/** Compares three accounts of a queue: what its backend has decided, what the core has asked for, and what programs say. */
export class QueueDesk extends ProgramDesk implements QueueWatch {
  readonly programs: QueueProgram[] = []
  readonly #ledgers = new Map<SimQueue, QueueLedger>()
  /** All is well and nobody asks for a second time: nothing may come twice. */
  isCalm = false
  /** Nothing goes wrong, but for handlers. */
  isAlwaysWell = false
  #crashes = 0

  ledger(queue: SimQueue): QueueLedger {
    let ledger = this.#ledgers.get(queue)
    if (ledger === undefined) {
      ledger = new QueueLedger()
      this.#ledgers.set(queue, ledger)
    }
    return ledger
  }

  /** The machine has crashed: acknowledgements that were not confirmed may be undone. */
  crashed(): void {
    this.#crashes++
    for (const ledger of this.#ledgers.values()) for (const item of ledger.items) item.isAcked = item.isConfirmed
  }

  // ---- what the backend tells ----

  handedOut(session: FaultySession, queue: SimQueue, token: QueueToken): void {
    const item = this.ledger(queue).item(this.#numberOf(queue, token))
    if (this.trace.isOn) {
      const to = this.#program(session)
      this.trace.note("backend", `hands ${nameOf(token)} to ${to === undefined ? "nobody" : `p${to.id}`}`)
    }
    if (item.isConfirmed) this.violate("a confirmed ack is the end", `${nameOf(token)} is handed out again`)
    else if (item.isAcked) this.violate("an ack that counts is the end", `${nameOf(token)} is handed out again`)
  }

  heard(session: FaultySession, queue: SimQueue, token: QueueToken): void {
    const program = this.#program(session)
    if (program === undefined) return
    const number = this.#numberOf(queue, token)
    program.heard.set(`${queue.name}:${number}:${token.deliveries}`, {
      token,
      item: this.ledger(queue).item(number),
      sinceMs: this.#nowMs,
      isGiven: false,
      isInHand: false,
      isAsked: false,
      countedBefore: undefined,
      wish: undefined,
    })
    program.byToken.set(token, queue)
  }

  settling(session: FaultySession, queue: SimQueue, settlement: Settlement, confirm: boolean): void {
    const program = this.#program(session)
    if (program === undefined) return
    const token = settlement.token as QueueToken
    if (this.trace.isOn) {
      const { verdict, delayMs } = settlement
      const how = `${confirm ? ", confirmed" : ""}${delayMs === undefined ? "" : `, after ${delayMs} ms`}`
      this.note(program, `asks for ${verdict} of ${nameOf(token)}${how}`)
    }
    const delivery = program.heard.get(`${queue.name}:${this.#numberOf(queue, token)}:${token.deliveries}`)
    if (delivery === undefined) {
      this.violate("only what was handed out is settled", `${nameOf(token)} was never handed to p${program.id}`)
      return
    }
    if (settlement.verdict !== "inProgress") delivery.isAsked = true
    if (settlement.verdict === "ack") this.#acking(program, queue, delivery)
    if (settlement.verdict === "terminate") this.#terminating(program, queue, delivery)
    if (settlement.verdict === "nak") this.#naking(program, delivery)
  }

  settled(session: FaultySession, queue: SimQueue, settlement: Settlement, counts: boolean): void {
    const token = settlement.token as QueueToken
    if (this.trace.isOn) {
      this.trace.note("backend", `${settlement.verdict} of ${nameOf(token)} ${counts ? "counts" : "does not count"}`)
    }
    if (!counts) return
    const delivery = this.#program(session)?.heard.get(
      `${queue.name}:${this.#numberOf(queue, token)}:${token.deliveries}`,
    )
    if (delivery !== undefined && settlement.verdict === "inProgress") delivery.sinceMs = this.#nowMs
    if (delivery !== undefined && settlement.verdict === "ack") delivery.countedBefore = this.#crashes
  }

  answered(session: FaultySession, settlement: Settlement, outcome: boolean | MillraceError): void {
    const program = this.#program(session)
    if (program === undefined) return
    const token = settlement.token as QueueToken
    if (outcome === true) program.counted.add(`${settlement.verdict}:${keyOf(token)}`)
    if (this.trace.isOn) {
      const told = typeof outcome === "boolean" ? String(outcome) : outcome.kind
      this.note(program, `hears of ${settlement.verdict} of ${nameOf(token)}: ${told}`)
    }
  }

  // ---- what programs tell ----

  /** A program gets a message: in a handler, or to settle it itself. */
  given(program: QueueProgram, place: QueuePlace, message: GivenMessage): HeardDelivery | undefined {
    const number = numberIn(message.payload)
    const delivery = program.heard.get(`${place.queue}:${number}:${message.deliveries}`)
    const text = `message ${number}, delivery ${message.deliveries}`
    if (this.trace.isOn) this.note(program, `gets ${text}`)
    program.handedOut++
    if (delivery === undefined) {
      this.violate(
        "deliveries are counted exactly",
        `p${program.id} gets ${text}, which its backend has not handed out`,
      )
      return undefined
    }
    const { item, token } = delivery
    const queue = program.byToken.get(token) as SimQueue
    if (delivery.isGiven) this.violate("a delivery is given once", `p${program.id} gets ${text} again`)
    delivery.isGiven = true
    this.#checkDeadline(program, queue, delivery)
    const { maxDeliver } = queue.spec
    if (maxDeliver !== undefined && token.deliveries > maxDeliver) {
      this.violate("no more deliveries than allowed", `p${program.id} gets ${text}, of ${maxDeliver}`)
    }
    if (item.given > 0 && this.isCalm && !item.isExcused) {
      this.violate("nothing is done twice for no reason", `p${program.id} gets ${text}, which somebody had before`)
    }
    item.given++
    delivery.isInHand = true
    return delivery
  }

  /** It is shut down in order: what it has got and given to nobody is given back, at once. */
  ended(program: QueueProgram): void {
    if (!this.isAlwaysWell || program.endsInHaste || program.place.options.ackPolicy === "none") return
    const { ackWaitMs = 30_000, backoffMs = [ackWaitMs] } = program.place.options
    for (const { token, isGiven, isAsked, sinceMs } of program.heard.values()) {
      // What comes while it ends, nobody can give back any more.
      if (isGiven || isAsked || sinceMs >= program.endingMs) continue
      if (this.#nowMs > sinceMs + Math.min(...backoffMs)) continue
      this.violate("what nobody took is given back", `p${program.id} has ended with ${nameOf(token)}`)
      return
    }
  }

  /** A handler is done with it, well or not. */
  handled(delivery: HeardDelivery | undefined, isDone: boolean): void {
    if (delivery === undefined) return
    const { item } = delivery
    delivery.isInHand = false
    if (isDone) item.handled++
    else item.isExcused = true
  }

  /** An acknowledgement of the program's own was answered. */
  acked(
    program: QueueProgram,
    delivery: HeardDelivery | undefined,
    { confirm, counts }: { readonly confirm: boolean; readonly counts: boolean },
  ): void {
    if (delivery === undefined || !counts) return
    const { token, item } = delivery
    const queue = program.byToken.get(token) as SimQueue
    if (queue.spec.ackPolicy === "none") return
    if (!program.counted.has(`ack:${keyOf(token)}`)) {
      this.violate("true means that it counts", `p${program.id} is told that the ack of ${nameOf(token)} counts`)
    }
    // What is told may have been undone before it is heard.
    if (confirm || delivery.countedBefore === this.#crashes) item.isAcked = true
    if (confirm) item.isConfirmed = true
  }

  // ---- checks ----

  #acking(program: QueueProgram, queue: SimQueue, { token, item, wish }: HeardDelivery): void {
    if (item.handled === 0 && wish !== "ack") {
      this.violate("nothing is acked before it is handled", `p${program.id} acks ${nameOf(token)}`)
    }
    for (const other of queue.coveredBy(token)) {
      const covered = program.heard.get(`${queue.name}:${this.#numberOf(queue, other)}:${other.deliveries}`)
      if (covered === undefined || covered.item.handled > 0 || covered.wish === "ack") continue
      this.violate(
        "nothing is acked before it is handled",
        `p${program.id} acks ${nameOf(token)}, which covers ${nameOf(other)}`,
      )
    }
  }

  #terminating(program: QueueProgram, queue: SimQueue, { token, item, wish }: HeardDelivery): void {
    if (wish === "terminate") {
      item.isUnwanted = true
      return
    }
    const { maxDeliver } = queue.spec
    if (maxDeliver === undefined || token.deliveries < maxDeliver) {
      this.violate("what has deliveries left is not buried", `p${program.id} terminates ${nameOf(token)}`)
    }
    item.isBuried = true
    const { deadTopic } = program.place
    if (deadTopic === undefined || this.deadLetters(deadTopic).includes(item.number)) return
    this.violate("buried with its dead letter", `p${program.id} terminates ${nameOf(token)} without one`)
  }

  #naking(program: QueueProgram, { item, isInHand, token, wish }: HeardDelivery): void {
    item.isExcused = true
    if (wish === "nak" || !isInHand || program.endsInHaste) return
    this.violate("what is in a handler is not given away", `p${program.id} naks ${nameOf(token)}`)
  }

  /** What its process can know: when it has heard of it, and when its wait began anew. */
  #checkDeadline(program: QueueProgram, queue: SimQueue, { token, sinceMs }: HeardDelivery): void {
    const waitMs = queue.waitMs(token.deliveries)
    const nowMs = this.#nowMs
    if (queue.spec.ackPolicy === "none" || nowMs < sinceMs + waitMs + shortestMs) return
    this.violate(
      "nothing is given after its deadline",
      `p${program.id} gets ${nameOf(token)} ${Math.round(nowMs - sinceMs)} ms after its wait began, of ${waitMs}`,
    )
  }

  /** Numbers of the messages that lie in a dead-letter topic, or did before it was made again. */
  deadLetters(topic: string): readonly number[] {
    const histories = this.backend?.histories.filter((history) => history.topic === topic) ?? []
    return histories.flatMap(({ log }) => log.records.map(({ payload }) => numberIn(payload)))
  }

  #program(session: FaultySession): QueueProgram | undefined {
    return this.programs.find((program) => program.session === session)
  }

  /** Of the record of a delivery, also when its history is over. */
  #numberOf(_queue: SimQueue, { lineage, partition, offset }: QueueToken): number {
    const history = this.backend?.histories.find((one) => one.lineage === lineage && one.partition === partition)
    return numberAt(history?.log, offset)
  }

  get #nowMs(): number {
    return this.backend?.clock.monotonicMs() ?? 0
  }
}

/** The number of a record: what its payload begins with. */
export function numberAt(log: PartitionLog | undefined, offset: number): number {
  return numberIn(log?.records[offset]?.payload ?? null)
}

function keyOf({ partition, lineage, offset, deliveries }: QueueToken): string {
  return `${lineage}/${partition}@${offset}#${deliveries}`
}

function nameOf(token: QueueToken): string {
  return keyOf(token)
}
