import type {
  Anchor,
  Claim,
  MillraceError,
  OffsetEntry,
  OffsetOwner,
  PartitionRead,
  Position,
  ReadLimits,
  TopicPartition,
  Watermarks,
} from "@millrace/contract"
import type { Message } from "@millrace/core"
import type { FaultyBackend } from "../backend/faulty-backend.ts"
import type { FaultySession } from "../backend/faulty-session.ts"
import type { ReadingWatch } from "../backend/reading-watch.ts"
import type { History } from "../backend/sim-topic.ts"
import { ProgramDesk } from "../program-desk.ts"
import type { SimulationFrame } from "../simulation-frame.ts"
import type { ReadingCheck, StoreFact } from "./facts.ts"
import type { LaneView } from "./lane-view.ts"
import { Ledger } from "./ledger.ts"
import type { Owner } from "./owner.ts"
import { type Program, placeKey } from "./program.ts"

/** A message that a program has in its hands. */
export interface Held {
  readonly lane: LaneView
  readonly ledger: Ledger
  readonly offset: number
}

/** Keeps the books of a simulation of consumers: who got what, what is handled, what is stored; and asks each check about each step. */
export class ReadingDesk extends ProgramDesk implements ReadingWatch {
  readonly #checks: readonly ReadingCheck[]
  readonly #programs = new Map<FaultySession, Program>()
  readonly #ledgers = new Map<string, Ledger>()
  readonly #histories = new Map<string, History>()
  #known = 0

  constructor(frame: SimulationFrame, checks: readonly ReadingCheck[]) {
    super(frame)
    this.#checks = checks
  }

  /** A program has begun. */
  enlist(program: Program): void {
    this.#programs.set(program.session, program)
  }

  /** A program has its consumer, and was told what came before. */
  listens(program: Program): void {
    const early = program.early ?? []
    program.early = undefined
    for (const fact of early) this.#checkStore(fact)
  }

  get programs(): readonly Program[] {
    return [...this.#programs.values()]
  }

  // ---- what programs tell -----------------------------------------------------------------------------------

  /** A message was handed out. */
  handedOut(program: Program, message: Message): Held {
    const { stream, topic } = message
    const { partition, offset: at } = message.position
    const checkpoint = message.checkpoint()
    const place = { stream, topic, partition }
    const lane = program.lane(place)
    const offset = Number(at)
    const history = this.#history(place, checkpoint.lineage)
    const ledger = this.ledger(program.owner, history)
    if (this.trace.isOn) this.note(program, `gets ${topic}/${partition}@${offset}`)
    for (const check of this.#checks) {
      this.#tell(check, check.handedOut?.({ program, lane, offset, history, ledger }))
    }
    // Nothing is stored: it begins somewhere by rule, and what lies before is nobody's.
    if (lane.expected === undefined && program.beginsByRule(place)) ledger.waive(0, offset)
    lane.took(offset)
    lane.lineage = checkpoint.lineage
    lane.claim = checkpoint.claim?.token
    program.handedOut++
    const { semantics } = program.owner
    if (semantics === "delivery" || semantics === "onRead") this.handled({ lane, ledger, offset })
    return { lane, ledger, offset }
  }

  /** The program asks for more: where that is what counts, all that it got is handled. */
  asked(program: Program): void {
    program.isAbandoned = false
    if (program.owner.semantics !== "marks") this.askedForAll(program)
  }

  /** All that the program got is handled. */
  askedForAll(program: Program): void {
    for (const lane of program.lanes.values()) this.#handleThrough(program, lane, Number.POSITIVE_INFINITY)
  }

  /** The program commits a message: it and all before it are handled. */
  committed(program: Program, { lane, offset }: Held): void {
    this.#handleThrough(program, lane, offset)
  }

  /** The program commits what it got of a partition. */
  committedThrough(program: Program, lane: LaneView, offset: number): void {
    this.#handleThrough(program, lane, offset)
  }

  /** One message is handled. */
  handled(held: Held): void {
    const { lane, ledger, offset } = held
    ledger.handled(offset)
    lane.handled(offset, ledger.history.log.hidden)
  }

  /** The program passes over records of its own will: nobody has to handle them. */
  waived(program: Program, place: TopicPartition, range: { readonly from: number; readonly to: number }): void {
    const history = this.present(place)
    if (history !== undefined) this.ledger(program.owner, history).waive(range.from, range.to)
  }

  /** A named consumer has ended without an error, with time enough. */
  ended(program: Program): void {
    for (const lane of program.lanes.values()) {
      if (lane.lineage === undefined || lane.isWilful) continue
      const present = this.#stored(program.owner, lane.place)
      if (present === undefined || this.present(lane.place)?.lineage !== lane.lineage) continue
      // Who goes on under the name may be there already, and behind.
      const stored = Math.max(present, lane.storedNext)
      const { owner } = program
      for (const check of this.#checks) this.#tell(check, check.ended?.({ program, owner, lane, stored }))
    }
  }

  // ---- what the backend tells -------------------------------------------------------------------------------

  loaded(session: FaultySession, owner: OffsetOwner, answer: Position | undefined, place: TopicPartition): void {
    const program = this.#programs.get(session)
    if (program === undefined || program.owner.of.name !== owner.name) return
    // Once it is being read, somebody asks for other reasons.
    const key = placeKey(place)
    const lane = program.lanes.get(key)
    const isRead = lane !== undefined && (lane.expected !== undefined || lane.readTo > 0)
    const isAsked = program.isAsking && program.loads.has(key)
    if (isAsked && answer !== undefined) program.asked.set(key, Number(answer.offset))
    if (!isRead && !isAsked) {
      program.loads.set(key, answer === undefined ? undefined : Number(answer.offset))
      program.asked.delete(key)
    }
    this.note(program, `loads ${place.topic}/${place.partition}: ${answer?.offset ?? "nothing"}`)
  }

  located(session: FaultySession, at: Anchor, answer: Position): void {
    const program = this.#programs.get(session)
    if (program === undefined) return
    program.anchors.set(placeKey(answer), Number(answer.offset))
    const history = this.present(answer)
    // What lies before a start that is nobody's progress is nobody's either, whether or not a record comes behind it.
    if (history?.lineage === answer.lineage && program.beginsByRule(answer))
      this.ledger(program.owner, history).waive(0, Number(answer.offset))
    this.note(program, `locates ${at.kind} of ${answer.topic}/${answer.partition}: ${answer.offset}`)
  }

  measured(session: FaultySession, { topic, partition, first, end }: Watermarks): void {
    const program = this.#programs.get(session)
    if (program !== undefined) this.note(program, `measures ${topic}/${partition}: ${first} to ${end}`)
  }

  storing(session: FaultySession, owner: OffsetOwner, entry: OffsetEntry): void {
    const fact = this.#storeFact(session, owner, entry)
    if (fact === undefined) return
    this.note(fact.program, `stores ${entry.topic}/${entry.partition}: ${entry.offset}`)
    if (fact.program.early === undefined) this.#checkStore(fact)
    else fact.program.early.push(fact)
  }

  #checkStore(fact: StoreFact): void {
    for (const check of this.#checks) {
      // What is told to the program in the same breath counts too.
      if (check.storing?.(fact) !== undefined) queueMicrotask(() => this.#tell(check, check.storing?.(fact)))
    }
  }

  stored(session: FaultySession, owner: OffsetOwner, entry: OffsetEntry, refusal: MillraceError | undefined): void {
    const fact = this.#storeFact(session, owner, entry)
    if (fact === undefined) return
    this.note(fact.program, `stored ${entry.topic}/${entry.partition}: ${refusal?.message ?? entry.offset}`)
    if (refusal !== undefined) return
    if (fact.lane !== undefined) {
      fact.lane.isStoreBroken = false
      fact.lane.storedNext = Math.max(fact.lane.storedNext, Number(entry.offset))
    }
    for (const check of this.#checks) this.#tell(check, check.stored?.(fact))
  }

  unstored(session: FaultySession, _: OffsetOwner, entry: OffsetEntry, error: MillraceError): void {
    const program = this.#programs.get(session)
    if (program === undefined) return
    this.note(program, `fails to store ${entry.topic}/${entry.partition}: ${error.kind}`)
    const lane = program.lanes.get(placeKey(entry))
    // Nobody tries that again by itself: the program is told.
    if (lane !== undefined && !error.retryable) lane.isStoreBroken = true
  }

  deleted(session: FaultySession, _: OffsetOwner, place: TopicPartition, refusal: MillraceError | undefined): void {
    const program = this.#programs.get(session)
    if (program !== undefined) {
      this.note(program, `deleted the progress of ${place.topic}/${place.partition}: ${refusal?.message ?? "done"}`)
    }
  }

  claimed(claim: Claim, memberId: string): void {
    if (this.trace.isOn)
      this.trace.note("backend", `${claim.topic}/${claim.partition} is ${memberId}'s: ${claim.token}`)
  }

  unclaimed(claim: Claim, why: "released" | "lost"): void {
    if (this.trace.isOn) this.trace.note("backend", `${claim.topic}/${claim.partition} is ${why}: ${claim.token}`)
    if (why === "lost") return
    for (const program of this.#programs.values()) {
      const lane = program.lanes.get(placeKey(claim))
      if (lane === undefined || lane.claim !== claim.token || lane.isWilful || !program.isAlive) continue
      const stored = this.#stored(program.owner, claim)
      if (stored === undefined || this.present(claim)?.lineage !== lane.lineage) continue
      const { owner } = program
      for (const check of this.#checks) this.#tell(check, check.released?.({ program, owner, lane, stored }))
    }
  }

  polled(session: FaultySession, limits: ReadLimits, overlaps: boolean): void {
    const program = this.#programs.get(session)
    if (program === undefined) return
    if (overlaps) this.violate("one poll at a time", `program ${program.id} polls while a poll is under way`)
    for (const check of this.#checks) this.#tell(check, check.polled?.({ program, limits }))
  }

  answered(session: FaultySession, reads: readonly PartitionRead[]): void {
    const program = this.#programs.get(session)
    if (program === undefined) return
    for (const read of reads) {
      const how = read.error === undefined ? `to ${read.nextOffset}` : read.error.kind
      if (this.trace.isOn) this.note(program, `reads ${read.topic}/${read.partition}: ${how}`)
      if (read.error !== undefined) continue
      program.lane(read).readTo = Number(read.nextOffset)
    }
  }

  // ---- books ------------------------------------------------------------------------------------------------

  ledger(owner: Owner, history: History): Ledger {
    const key = `${owner.id} ${placeKey(history)} ${history.lineage}`
    let ledger = this.#ledgers.get(key)
    if (ledger === undefined) {
      ledger = new Ledger(history)
      this.#ledgers.set(key, ledger)
    }
    return ledger
  }

  /** The history of a partition that is not over. */
  present(place: TopicPartition): History | undefined {
    const topic = this.backend?.find(place)
    return topic?.log(place.partition) === undefined ? undefined : this.#history(place, topic.description.lineage)
  }

  #history(place: TopicPartition, lineage: string): History {
    const histories = this.backend?.histories ?? []
    for (; this.#known < histories.length; this.#known++) {
      const history = histories[this.#known] as History
      this.#histories.set(`${placeKey(history)} ${history.lineage}`, history)
    }
    return this.#histories.get(`${placeKey(place)} ${lineage}`) as History
  }

  #stored(owner: Owner, place: TopicPartition): number | undefined {
    const backend = this.backend as FaultyBackend
    if (backend.find(place)?.log(place.partition) === undefined) return undefined
    return Number(backend.offsets.stored(owner.of, place)?.offset ?? 0n)
  }

  #handleThrough(program: Program, lane: LaneView, offset: number): void {
    if (lane.lineage === undefined || lane.open.length === 0) return
    const ledger = this.ledger(program.owner, this.#history(lane.place, lane.lineage))
    for (const one of lane.open.filter((open) => open <= offset)) this.handled({ lane, ledger, offset: one })
  }

  #storeFact(session: FaultySession, owner: OffsetOwner, entry: OffsetEntry): StoreFact | undefined {
    const program = this.#programs.get(session)
    if (program === undefined || program.owner.of.name !== owner.name) return undefined
    const history = this.#history(entry, entry.lineage)
    if (history === undefined) {
      this.violate("stores name a history", `program ${program.id} stores for the history "${entry.lineage}"`)
      return undefined
    }
    const lane = program.lanes.get(placeKey(entry))
    return { program, owner: program.owner, entry, lane, ledger: this.ledger(program.owner, history) }
  }

  #tell(check: ReadingCheck, breach: string | undefined): void {
    if (breach !== undefined) this.violate(check.name, breach)
  }
}
