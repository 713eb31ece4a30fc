/**
 * One partition of a reader: a consumer on the server, and the messages that came from it and wait to be handed over. It comes to life
 * again by itself after anything that may pass: a cut connection, a restarted server, a consumer that is gone.
 */
import {
  type Claim,
  MillraceError,
  type PartitionRead,
  type Position,
  type ReadPosition,
  type TopicPartition,
} from "@millrace/contract"
import type { Msg } from "@nats-io/transport-node"
import type { Connection } from "./connection.ts"
import { tellReplaced } from "./diagnostics.ts"
import { NatsBatch } from "./encoded-batch.ts"
import { rawReply } from "./raw-message.ts"
import { type Portion, ReaderBacklog } from "./reader-backlog.ts"
import { ReaderBudget, type Share } from "./reader-budget.ts"
import { ReaderConsumer } from "./reader-consumer.ts"
import { type EndVerdict, judgeEnd, lookAtEnd } from "./reader-end.ts"
import { asMillraceError, isFinal } from "./reader-failure.ts"
import { ReaderMessage, ReplyShape } from "./reader-message.ts"
import { ReaderPulse } from "./reader-pulse.ts"
import { heldRange, outOfRange, placeRefusal } from "./reader-range.ts"
import { ReaderRetry } from "./reader-retry.ts"
import { statusOf } from "./reader-status.ts"
import { described, isReplicated, type PartitionInfo, type TopicLayouts } from "./topic-layout.ts"

/** What a lane needs of its reader. */
export interface LaneHost {
  readonly connection: Connection
  readonly layouts: TopicLayouts
  /** Something is there to be taken, or the lane failed. */
  stirred(): void
}

/**
 * - idle: waits for the connection, or for the next attempt.
 * - opening: looks at the partition and creates a consumer.
 * - live: has one.
 * - ended: failed for good, or closed.
 */
type LaneState = "idle" | "opening" | "live" | "ended"

export class ReaderLane {
  readonly place: TopicPartition
  readonly lineage: string
  /** Passed on with what is read. */
  claim: Claim | undefined
  readonly #host: LaneHost
  readonly #budget = new ReaderBudget()
  readonly #backlog: ReaderBacklog
  readonly #shape = new ReplyShape()
  readonly #pulse = new ReaderPulse()
  readonly #retry: ReaderRetry
  #state: LaneState = "idle"
  /** Grows with each consumer and each loss of one: what is meant for an older life is passed over. */
  #life = 0
  #consumer: ReaderConsumer | undefined
  /** Records that came from it. */
  #arrived = 0
  /** Whether the stream lies on several servers. */
  #replicated = false
  /** The last sequence that is known to be there. */
  #head: number
  /** Whether the server has more than what came. */
  #behind = true
  /** Reading went on over holes, and no message tells. */
  #moved = false
  #failure: MillraceError | undefined
  #trouble: MillraceError | undefined

  constructor(host: LaneHost, { stream, topic, partition, offset, lineage, claim }: ReadPosition) {
    this.#host = host
    this.#retry = new ReaderRetry(host.connection, () => this.start())
    this.claim = claim
    this.place = { stream, topic, partition }
    this.lineage = lineage
    this.#backlog = new ReaderBacklog(Number(offset))
    this.#head = this.#backlog.last
  }

  /** Whether a lane need not be made anew to read on here. */
  goesOnAt({ offset, lineage }: ReadPosition): boolean {
    return this.#state !== "ended" && this.lineage === lineage && BigInt(this.#backlog.taken) === offset
  }

  /** Records that can be taken now. */
  get ready(): number {
    return this.#backlog.ready
  }

  /** Something to tell but records: a failure, or a place behind holes. */
  get news(): boolean {
    return this.#failure !== undefined || this.#moved
  }

  /** Nothing more comes before something is taken. */
  get full(): boolean {
    return this.#state === "live" && this.#budget.full
  }

  /** Whether it is known that all there is has come. */
  get settled(): boolean {
    return this.#state === "ended" || (this.#state === "live" && (this.ready > 0 || !this.#behind))
  }

  /** Why nothing comes at the moment, if something is wrong that may pass. */
  get trouble(): MillraceError | undefined {
    return this.#trouble
  }

  /** Begins, or begins again; waits while the server is away. */
  start(): void {
    if (this.#state !== "idle" || !this.#host.connection.connected) return
    this.#retry.cancel()
    void this.#open()
  }

  /** Asks for more where there is room. */
  fill(share: Share): void {
    this.#budget.share = share
    this.#pull()
  }

  /** The connection was cut: what was asked for does not come. */
  lost(): void {
    if (this.#state !== "ended") this.#rest()
  }

  /** A heartbeat's time has passed: a server that was silent for several of them, or is behind its stream's leader, is not believed in any more. */
  tick(): void {
    const asked = this.#state === "live" && this.#budget.asked
    const verdict = this.#pulse.tick({ asked, waiting: this.#backlog.empty })
    if (verdict === "wait") return
    if (verdict === "look") {
      // A stream on one server cannot be behind itself, and is looked at when a pull ends.
      if (this.#replicated) void this.#lookForHoles(this.#life)
      return
    }
    if (verdict === "behind") tellReplaced(this.place, this.#backlog.last, this.#head)
    this.#rest()
    this.start()
  }

  close(): void {
    this.#state = "ended"
    this.#drop()
    this.#backlog.clear()
  }

  /** Takes what is there within the limits: at least one record if any is ready and `alone`. A failure is told once, when nothing else is left. */
  take(limits: {
    readonly records: number
    readonly bytes: number
    readonly alone: boolean
  }): PartitionRead | undefined {
    const portion = this.#backlog.portion(limits)
    if (portion.records > 0) return this.#handOver(portion)
    if (this.ready > 0) return undefined
    if (this.#failure !== undefined) {
      const error = this.#failure
      this.#failure = undefined
      return { ...this.place, error }
    }
    return this.#moved ? this.#read([]) : undefined
  }

  #handOver({ records, bytes }: Portion): PartitionRead {
    const taken = this.#backlog.take(records)
    const last = taken[records - 1] as ReaderMessage
    this.#budget.left(records, bytes)
    if (this.#backlog.empty) {
      const pending = last.pending()
      this.#head = Math.max(this.#head, last.sequence + pending)
      this.#behind = this.#head > last.sequence
      // The consumer has no more, and yet the end is known to lie further: what is between was deleted, or has not reached it.
      if (this.#behind && pending === 0) void this.#lookForHoles(this.#life)
    } else {
      this.#head = Math.max(this.#head, this.#backlog.last)
    }
    return this.#read([new NatsBatch(taken, bytes)])
  }

  #read(batches: readonly NatsBatch[]): PartitionRead {
    this.#moved = false
    const { stream, topic, partition } = this.place
    const { taken } = this.#backlog
    const head = BigInt(Math.max(this.#head, taken))
    const read = { stream, topic, partition, batches, nextOffset: BigInt(taken), head, lineage: this.lineage }
    return this.claim === undefined ? read : { ...read, claim: this.claim }
  }

  #pull(): void {
    if (this.#state !== "live") return
    const request = this.#budget.request()
    if (request === undefined) return
    this.#budget.pulled(request)
    this.#consumer?.pull(request)
  }

  #receive(message: Msg, life: number): void {
    if (life !== this.#life) return
    this.#pulse.hear()
    const reply = rawReply(message)
    const sequence = reply === undefined || reply.length === 0 ? 0 : this.#shape.sequence(reply)
    if (sequence === 0) {
      this.#hearStatus(message)
      return
    }
    const record = new ReaderMessage(message, sequence)
    this.#arrived++
    this.#retry.succeeded()
    this.#pulse.record()
    this.#budget.arrived(record.bytes)
    if (this.#budget.excessive) {
      const why = `${this.#what} cannot be read: the server sends far more than was asked for`
      this.#fail(new MillraceError("protocol", why))
      return
    }
    switch (this.#backlog.add(record)) {
      case "added":
        this.#host.stirred()
        break
      case "gap":
        void this.#lookIntoGap(life)
        break
      case "old":
        // A consumer that was moved to another server may begin anew.
        this.#budget.left(1, record.bytes)
        break
    }
    this.#pull()
  }

  #hearStatus(message: Msg): void {
    const { status, unservedMessages, unservedBytes, text } = statusOf(message)
    if (status === "gone") {
      this.#restAWhile()
      return
    }
    this.#retry.succeeded()
    if (status === "heartbeat") return
    if (status === "refused") {
      const why = `${this.#what} cannot be read: NATS answered a request for messages with "${text}"`
      this.#fail(new MillraceError("protocol", why, { outcome: "rejected" }))
      return
    }
    this.#budget.ended(unservedMessages, unservedBytes)
    if (status === "tooLarge") this.#budget.tooLarge()
    else if (!this.#budget.asked && this.#backlog.empty) void this.#lookForHoles(this.#life)
    // A reader that waits asks again at once; one that nobody asks is left alone until somebody does.
    this.#host.stirred()
  }

  async #open(): Promise<void> {
    this.#state = "opening"
    const life = ++this.#life
    await this.#within(life, async () => {
      const found = await this.#host.layouts.partition(this.place)
      if (life !== this.#life) return
      const wrong = placeRefusal(this.#position(this.#backlog.last), found)
      if (wrong === undefined) await this.#consume(found, life)
      else this.#fail(wrong)
    })
  }

  async #consume(found: PartitionInfo, life: number): Promise<void> {
    const { connection } = this.#host
    const begun = this.#backlog.last
    const { consumer, pending } = await ReaderConsumer.create(connection, found.streamName, {
      sequence: begun + 1,
      receive: (message) => this.#receive(message, life),
      refused: (error) => {
        if (life === this.#life) this.#fail(asMillraceError(error))
      },
    })
    if (life !== this.#life) {
      consumer.remove()
      return
    }
    this.#consumer = consumer
    this.#state = "live"
    this.#trouble = undefined
    this.#pulse.begin()
    this.#arrived = 0
    this.#replicated = isReplicated(found)
    const { last } = heldRange(found)
    this.#head = Math.max(this.#head, last)
    this.#behind = pending > 0 || this.#head > this.#backlog.last
    this.#pull()
    this.#host.stirred()
    if (pending === 0) this.#goBy(await judgeEnd(connection, found, begun), { life, last: begun })
  }

  /** Sequences are missing in front of a message: deleted one by one, which is passed over, or trimmed away, which is told. */
  #lookIntoGap(life: number): Promise<void> {
    return this.#within(life, async () => {
      const range = heldRange(await this.#host.layouts.partition(this.place))
      if (life !== this.#life) return
      for (let after = this.#backlog.gapAfter; after !== undefined; after = this.#backlog.gapAfter) {
        if (range.first > after + 1) {
          this.#forgetBehindGap()
          this.#fail(outOfRange(this.#position(after), range))
          return
        }
        this.#backlog.passGap()
      }
      this.#host.stirred()
      this.#pull()
    })
  }

  /** Nothing came though something might: perhaps nothing is there between the present place and the end. */
  #lookForHoles(life: number): Promise<void> {
    const { last } = this.#backlog
    const standing = { last, consumer: this.#consumer, arrived: () => this.#arrived }
    return this.#within(life, async () => {
      this.#goBy(await lookAtEnd(this.#host, this.place, standing), { life, last })
    })
  }

  /** @param at.last Where the lane stood when it was looked: records that came meanwhile make the verdict void. */
  #goBy({ kind, range }: EndVerdict, at: { readonly life: number; readonly last: number }): void {
    if (at.life !== this.#life || at.last !== this.#backlog.last || !this.#backlog.empty) return
    this.#head = Math.max(this.#head, range.last)
    if (kind === "trimmed") this.#fail(outOfRange(this.#position(at.last), range))
    else if (kind === "owed") this.#pulse.owes()
    else this.#passTo(range.last)
  }

  #passTo(sequence: number): void {
    if (!this.#backlog.passTo(sequence)) return
    this.#head = Math.max(this.#head, sequence)
    this.#behind = false
    this.#moved = true
    this.#host.stirred()
  }

  /** Runs what belongs to one life of the lane; a failure in another is of no account. */
  async #within(life: number, work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (life === this.#life) this.#stumble(asMillraceError(error))
    }
  }

  /** What may pass is tried again; anything else ends the lane. */
  #stumble(error: MillraceError): void {
    if (isFinal(error)) {
      this.#fail(error)
      return
    }
    this.#trouble = error
    this.#restAWhile()
  }

  #restAWhile(): void {
    this.#rest()
    this.#retry.schedule()
  }

  #fail(error: MillraceError): void {
    if (this.#state === "ended") return
    this.#state = "ended"
    this.#drop()
    this.#failure = error
    this.#host.stirred()
  }

  /** Back to where a consumer is needed. What came and was not taken stays, unless it lies behind a gap that nobody looked into. */
  #rest(): void {
    this.#state = "idle"
    this.#drop()
    this.#forgetBehindGap()
  }

  #drop(): void {
    this.#life++
    this.#retry.cancel()
    this.#consumer?.remove()
    this.#consumer = undefined
    this.#budget.lost()
  }

  #forgetBehindGap(): void {
    const { records, bytes } = this.#backlog.dropBehindGap()
    this.#budget.left(records, bytes)
  }

  #position(sequence: number): Position {
    return { ...this.place, offset: BigInt(sequence), lineage: this.lineage }
  }

  get #what(): string {
    return `partition ${this.place.partition} of topic ${described(this.place)}`
  }
}
