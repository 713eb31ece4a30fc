import type {
  Compression,
  Manifest,
  MillraceError,
  PartitionLog,
  TopicDescription,
  WriterLimits,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { BatchObserver } from "../observe/batch-observer.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import type { BatchJournal, Restoration, RestoredBatch } from "./batch-journal.ts"
import type { Call } from "./call.ts"
import { Chunk } from "./chunk.ts"
import type { DeliveryGroup } from "./delivery-group.ts"
import type { Identities } from "./identity-source.ts"
import type { PendingBatch } from "./pending-batch.ts"
import { outOfRange, type Partitioner, type Route, Router } from "./routing.ts"
import { ScratchRecord } from "./scratch-record.ts"
import { type SendCall, unconfirmedRecords } from "./send-call.ts"
import { type Admission, millraceError, Sender, type SenderContext, shared } from "./sender.ts"
import type { SenderSettings } from "./sender-command.ts"
import type { TransactionScope } from "./transaction-scope.ts"

export interface AccumulatorContext {
  readonly description: TopicDescription
  readonly log: PartitionLog
  readonly limits: Manifest["limits"]
  readonly clock: Clock
  readonly random: Random
  readonly settings: SenderSettings
  readonly confirm: "offsets" | "stored"
  /** Of one request; the backend's limits hold besides. */
  readonly batchRecords: number
  readonly batchBytes: number
  readonly compression: Compression | undefined
  readonly partitioner: Partitioner | undefined
  readonly identities: Identities | undefined
  readonly transaction?: TransactionScope | undefined
  readonly observer: BatchObserver
  readonly onResend: () => void
  readonly journal?: BatchJournal | undefined
  readonly onDoubt?: ((records: number) => void) | undefined
  /** The topic is another one now: the accumulator takes nothing more. */
  readonly onGone: () => void
}

/**
 * Takes records of calls into the open batches of one incarnation of a topic, in the driver's final form, at once. Which partition a
 * record goes to is decided here; when a batch goes out is its sender's business.
 */
export class Accumulator {
  readonly #context: AccumulatorContext
  readonly #senderContext: SenderContext
  readonly #limits: WriterLimits
  #senders: (Sender | undefined)[] = []
  #router: Router
  #description: TopicDescription
  #nextInBalance: number
  /** The batch that records in balance go to until it is closed. */
  #sticky: PendingBatch | undefined
  #living = 0
  #left: (readonly PendingBatch[])[] = []
  #goneError: MillraceError | undefined
  #retired: (() => void) | undefined
  /** Reused for every record of every call: a writer keeps no reference. */
  readonly #scratch = new ScratchRecord()

  constructor(context: AccumulatorContext) {
    this.#context = context
    const { limits } = context
    this.#limits = {
      records: Math.min(context.batchRecords, limits.batchRecords),
      bytes: Math.min(context.batchBytes, limits.batchBytes),
      ...(context.compression === undefined ? {} : { compression: context.compression }),
    }
    this.#description = context.description
    this.#router = this.#newRouter(context.description)
    this.#nextInBalance = context.random.uint32() % context.description.partitions.length
    this.#senderContext = {
      name: { stream: context.description.stream, topic: context.description.topic },
      log: context.log,
      clock: context.clock,
      random: context.random,
      settings: context.settings,
      confirm: context.confirm,
      identities: context.identities,
      transaction: context.transaction,
      restoringWriter: (partition, records) =>
        context.log.writer(this.#description, partition, { ...this.#limits, records, bytes: limits.batchBytes }),
      lineage: context.description.lineage,
      journal: context.journal,
      onDoubt: context.onDoubt,
      newWriter: (partition) => context.log.writer(this.#description, partition, this.#limits),
      observer: context.observer,
      onResend: context.onResend,
      onHandBack: (partition, batches, error) => this.#takeBack(partition, batches, error),
    }
  }

  get description(): TopicDescription {
    return this.#description
  }

  get partitions(): number {
    return this.#router.partitions
  }

  /** A newer description of the same incarnation, which may have more partitions. */
  refresh(description: TopicDescription): void {
    this.#description = description
    this.#router = this.#newRouter(description)
  }

  /**
   * Takes every record of a call. The call is refused, and nothing of it taken, when a partitioner fails, or when the topic has no such
   * partition as it names.
   */
  append(call: SendCall): void {
    let partitions: Int32Array | number
    try {
      this.checkedPartition(call.highestPartition)
      partitions = this.#locate(call)
    } catch (error) {
      call.refuse(error as MillraceError)
      return
    }
    const { count } = call
    const length = this.#limits.records
    if (count <= length && !call.resend) {
      this.#appendRange(call, { from: 0, to: count, partitions, admission: shared })
    } else {
      let before: Chunk | undefined
      for (let from = 0; from < count; from += length) {
        const chunk = new Chunk(before, this.#context.settings.maxInFlight > 1)
        const admission = { chunk, resend: call.resend, isMoved: false }
        const to = Math.min(count, from + length)
        if (!this.#appendRange(call, { from, to, partitions, admission })) break
        before = chunk
      }
    }
    call.taken()
  }

  /** The same number. @throws InvalidError when the topic has no such partition */
  checkedPartition(partition: number): number {
    if (partition < this.partitions) return partition
    const { stream, topic } = this.#description
    throw outOfRange(`partition ${partition}`, { stream, topic, partitions: this.partitions })
  }

  /**
   * Takes one record of a call, which may share its batch with those of others. The partition that it names is known to exist.
   * @throws InvalidError when the partitioner fails, RecordTooLargeError; then nothing was taken
   */
  appendOne(record: SendableRecord, call: Call, index: number): void {
    const { route } = call
    const partition = this.#partitionOf(record, route)
    const sender = this.#senderFor(partition, 1, shared)
    try {
      sender.append(this.#scratch.fill(record, route.kind === "key" ? route.key : null), call, index)
    } catch (thrown) {
      throw millraceError(thrown)
    } finally {
      this.#scratch.clear()
    }
    if (partition === -1) this.#sticky = sender.open
  }

  /**
   * `appendOne` for a record that somebody waits for: into the group that its batch ends with, or into a new one.
   * @throws as `appendOne`
   */
  appendToGroup(record: SendableRecord, route: Route, open: () => DeliveryGroup): DeliveryGroup {
    const partition = this.#partitionOf(record, route)
    const sender = this.#senderFor(partition, 1, shared)
    try {
      return sender.appendToGroup(this.#scratch.fill(record, route.kind === "key" ? route.key : null), open)
    } catch (thrown) {
      throw millraceError(thrown)
    } finally {
      this.#scratch.clear()
      if (partition === -1) this.#sticky = sender.open
    }
  }

  /** Puts a batch of an earlier process on its way again, as it was; its records are those of the call. */
  restore(call: Call, batch: RestoredBatch): Restoration {
    const { sequenced, windowMs = Number.POSITIVE_INFINITY } = this.#context.settings
    if (batch.lineage !== this.#description.lineage || batch.partition >= this.partitions) return "replaced"
    const isKnown = sequenced ? batch.identity !== undefined : batch.identity === undefined && !batch.isMoved
    if (!isKnown || batch.ageMs >= windowMs) return "expired"
    return this.#sender(batch.partition).restore(call, batch) ? "restored" : "expired"
  }

  /** What lingers for more records need not any more. */
  release(): void {
    for (const sender of this.#senders) sender?.release()
  }

  /**
   * Takes the records of an earlier incarnation's batch, in batches of their own, to the partitions where they belong here. Those whose
   * partition is gone, or that are too large here, fail alone.
   * @returns whether every record was taken
   */
  takeMoved(batch: PendingBatch, formerPartitions: number): boolean {
    const admission = { chunk: batch.chunk, resend: batch.resend, isMoved: true }
    const touched = new Set<Sender>()
    let isWhole = true
    for (const { call, index, records } of batch.takeParts()) {
      // Whoever named no partition that is gone is not refused for one that the balance chose.
      const isChosen = batch.partition >= this.partitions && call.highestPartition < this.partitions
      const home = isChosen ? batch.partition % this.partitions : batch.partition
      // Told when the others are in their new batches, so that the call settles with the last of them.
      const failed: (() => void)[] = []
      for (const [i, record] of records.entries()) {
        try {
          // A key leads elsewhere where there are more partitions, or fewer.
          const partition = formerPartitions === this.partitions || record.key === null ? home : -1
          const place = this.#router.partitionOf({ ...record, partition }, call.route)
          const sender = this.#sender(this.checkedPartition(place))
          if (!touched.has(sender)) {
            sender.closeBatch()
            sender.admit(admission)
            touched.add(sender)
          }
          sender.append(record, call, index + i)
        } catch (thrown) {
          call.openPart()
          const error = millraceError(thrown)
          failed.push(() => call.failPart(index + i, unconfirmedRecords([record], batch.partition), error))
        }
      }
      call.movePart()
      for (const fail of failed) fail()
      if (failed.length > 0) isWhole = false
    }
    for (const sender of touched) sender.closeBatch()
    return isWhole
  }

  /** Stops. Settles when nothing is in flight, with what made it stop; what has not settled waits for `takeLeft`. */
  retire(): Promise<MillraceError | undefined> {
    return new Promise((resolve) => {
      this.#retired = () => resolve(this.#goneError)
      for (const sender of this.#senders) sender?.retire()
      if (this.#living === 0) this.#retired()
    })
  }

  /**
   * The batches that a retired accumulator has left behind, those of each partition in their order, and together in the order in which
   * they were begun: a request must not come behind one that waits for it. They are the caller's from here on.
   */
  takeLeft(): PendingBatch[] {
    const left = this.#left.map((batches) => [...batches].reverse())
    this.#left = []
    const ordered: PendingBatch[] = []
    for (;;) {
      let next: PendingBatch[] | undefined
      for (const batches of left) {
        const head = batches.at(-1)
        if (head !== undefined && (next === undefined || head.isOlderThan(next.at(-1) as PendingBatch))) next = batches
      }
      if (next === undefined) return ordered
      ordered.push(next.pop() as PendingBatch)
    }
  }

  /** Fails everything that has not settled. */
  abort(error: MillraceError): void {
    for (const sender of this.#senders) sender?.abort(error)
    for (const batch of this.takeLeft()) batch.fail(error)
    this.#retired?.()
  }

  /** −1: in balance. */
  #partitionOf(record: SendableRecord, route: Route): number {
    const isPlain = record instanceof Uint8Array && this.#router.isUniform
    return isPlain ? this.#router.partitionOfRoute(route) : this.#router.partitionOf(record, route)
  }

  /** One partition for all records, −1 in balance, or one each. */
  #locate(call: SendCall): Int32Array | number {
    const { records, route, count } = call
    if (this.#router.isUniform && !call.isMixed) return this.#router.partitionOfRoute(route)
    if (count === 1) return this.#router.partitionOf(records[0] as SendableRecord, route)
    const partitions = new Int32Array(count)
    for (let i = 0; i < count; i++) partitions[i] = this.#router.partitionOf(records[i] as SendableRecord, route)
    return partitions
  }

  /** False when nothing may follow; the call knows why. A record that is too large fails alone: those around it go their way. */
  #appendRange(call: SendCall, range: Range): boolean {
    const { from, to, partitions, admission } = range
    const { chunk } = admission
    const { records, route } = call
    const defaultKey = route.kind === "key" ? route.key : null
    const uniform = typeof partitions === "number"
    let balanced: Sender | undefined
    let common: Sender | undefined
    let refused: MillraceError | undefined
    if (uniform) {
      common = this.#senderFor(partitions, to - from, admission)
      if (partitions === -1) balanced = common
    }
    let index = from
    try {
      for (; index < to; index++) {
        let sender = common
        if (sender === undefined) {
          const partition = (partitions as Int32Array)[index] as number
          if (partition === -1) balanced ??= this.#senderFor(-1, to - from, admission)
          sender = partition === -1 ? (balanced as Sender) : this.#senderFor(partition, 1, admission)
        }
        try {
          sender.append(this.#scratch.fill(records[index] as SendableRecord, defaultKey), call, index)
        } catch (thrown) {
          const error = millraceError(thrown)
          if (error.kind !== "record-too-large") throw error
          call.refuseOne(index, error)
          refused ??= error
        }
      }
    } catch (thrown) {
      call.refuseFrom(index, millraceError(thrown))
      return false
    } finally {
      this.#scratch.clear()
      if (chunk !== undefined) this.#complete(chunk)
    }
    if (balanced !== undefined && chunk === undefined) this.#sticky = balanced.open
    if (refused === undefined || to === call.count) return true
    call.refuseFrom(to, refused)
    return false
  }

  /** A chunk is alone in its batches: nothing joins them any more. */
  #complete(chunk: Chunk): void {
    for (const sender of this.#senders) if (sender?.open?.chunk === chunk) sender.closeBatch()
    chunk.completed()
  }

  /** The sender of a partition (−1: the next one in balance), ready for `count` records that should share a batch. */
  #senderFor(partition: number, count: number, admission: Admission): Sender {
    const sender = this.#sender(partition === -1 ? this.#balance(count, admission.chunk) : partition)
    sender.admit(admission)
    const open = sender.open
    if (open !== undefined && open.count + count > this.#limits.records) sender.closeBatch()
    return sender
  }

  #balance(count: number, chunk: Chunk | undefined): number {
    const sticky = this.#sticky
    const stays = sticky !== undefined && !sticky.full && sticky.count + count <= this.#limits.records
    return stays && chunk === undefined ? sticky.partition : this.#nextPartition()
  }

  #nextPartition(): number {
    const partition = this.#nextInBalance % this.partitions
    this.#nextInBalance = (partition + 1) % this.partitions
    return partition
  }

  #sender(partition: number): Sender {
    let sender = this.#senders[partition]
    if (sender === undefined) {
      sender = new Sender(this.#senderContext, partition)
      this.#senders[partition] = sender
      this.#living++
    }
    return sender
  }

  #takeBack(partition: number, batches: readonly PendingBatch[], error: MillraceError | undefined): void {
    this.#living--
    this.#senders[partition] = undefined
    this.#left.push(batches)
    this.#goneError ??= error
    if (this.#living === 0) this.#retired?.()
    if (this.#retired === undefined) this.#context.onGone()
  }

  #newRouter(description: TopicDescription): Router {
    const { stream, topic, partitions } = description
    return new Router(this.#context.log, { stream, topic, partitions: partitions.length }, this.#context.partitioner)
  }
}

interface Range {
  readonly from: number
  readonly to: number
  readonly partitions: Int32Array | number
  readonly admission: Admission
}
