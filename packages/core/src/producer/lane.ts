import type { MillraceError, TopicName } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { heldRecord, keyBytesOf, payloadBytesOf } from "../record/record-size.ts"
import { BulkCall } from "./bulk-call.ts"
import { type Delivery, DeliveryCall, type DeliverySettled } from "./delivery-call.ts"
import { DeliveryGroup, type GroupSettled } from "./delivery-group.ts"
import type { PublishFailedError } from "./publish-failed.ts"
import type { Publisher } from "./publisher.ts"
import { partitionOf, type Route } from "./routing.ts"
import type { StatisticsCounter } from "./statistics.ts"

export interface LaneContext {
  readonly publisher: Publisher
  readonly clock: Clock
  readonly statistics: StatisticsCounter
  readonly batchLength: number
  readonly batchBytes: number
  readonly lingerMs: number
  /** Sends have settled; their room in the buffer is free again. */
  readonly onSettled: (bufferBytes: number, failure: PublishFailedError | undefined) => void
}

/** Where a send goes. */
export interface Destination {
  readonly name: TopicName
  readonly route: Route
}

/**
 * One way out of a background producer: sends go straight into the open batches of their partitions and linger there until the lane is
 * flushed, by count, bytes or time, or since others wait for their room. A flush says that open batches may go; while none can, more
 * sends join them.
 */
export class Lane {
  readonly #context: LaneContext
  #bulk: BulkCall | undefined
  #sends = 0
  #bytes = 0
  #timer: Timer | undefined
  #isFlushDue = false
  /** Where the group goes that is made next. */
  #groupTo: Destination | undefined

  constructor(context: LaneContext) {
    this.#context = context
  }

  /** Takes one send. A record of it that no batch can take fails as others fail that were accepted. */
  send(records: readonly SendableRecord[], to: Destination, bufferBytes: number): void {
    const bulk = this.#bulkFor(to)
    for (let i = 0; i < records.length; i++) this.#putOrRefuse(records[i] as SendableRecord, bulk)
    bulk.holds(bufferBytes)
    this.#sent(bufferBytes)
  }

  /** @throws InvalidError, RecordTooLargeError */
  sendOne(record: SendableRecord, to: Destination, bufferBytes: number): void {
    const bulk = this.#bulkFor(to)
    this.#put(record, bulk)
    bulk.holds(bufferBytes)
    this.#sent(bufferBytes)
  }

  /** Takes one record with a delivery of its own. @throws InvalidError, RecordTooLargeError */
  deliver(record: SendableRecord, to: Destination, bufferBytes: number): DeliveryCall {
    const { publisher, clock, statistics } = this.#context
    const owner = { route: to.route, nowMs: clock.monotonicMs(), settled: this.#delivered }
    const call = new DeliveryCall(to.name, record, owner)
    call.bufferBytes = bufferBytes
    // What came before in the same lane must not be overtaken while it waits for its topic.
    const accumulator = publisher.acceptor(to.name, call.highestPartition)
    if (accumulator === undefined) {
      this.#closeBulk()
      // Its sender may go on before the topic is ready.
      call.hold(heldRecord(record))
      publisher.take(call)
      publisher.dispatch(call)
    } else {
      accumulator.appendOne(record, call, 0)
      publisher.take(call)
    }
    statistics.submitted(1, call.payloadBytes, call.startedMs)
    this.#sent(bufferBytes)
    return call
  }

  /**
   * Takes one record and answers its delivery, for which somebody waits: cheaper than `deliver`, since records of one batch share a call.
   * @throws InvalidError, RecordTooLargeError
   */
  confirm(record: SendableRecord, to: Destination, bufferBytes: number): Promise<Delivery> {
    const { publisher, statistics } = this.#context
    const { route } = to
    const accumulator = publisher.acceptor(to.name, partitionOf(record, route))
    if (accumulator === undefined) return this.deliver(record, to, bufferBytes).delivery
    this.#groupTo = to
    const group = accumulator.appendToGroup(record, route, this.#newGroup)
    if (group.count === 0) publisher.take(group)
    const payloadBytes = payloadBytesOf(record)
    const delivery = group.joined(keyBytesOf(record, route), payloadBytes, bufferBytes)
    statistics.submitted(1, payloadBytes, group.startedMs)
    this.#sent(bufferBytes)
    return delivery
  }

  /** What lingers goes out now. */
  flush(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#sends = 0
    this.#bytes = 0
    this.#closeBulk()
    this.#context.publisher.release()
  }

  /** What lingers goes out behind all sends of this turn. */
  flushSoon(): void {
    if (this.#isFlushDue || this.#sends === 0) return
    this.#isFlushDue = true
    queueMicrotask(() => {
      this.#isFlushDue = false
      this.flush()
    })
  }

  #putOrRefuse(record: SendableRecord, bulk: BulkCall): void {
    try {
      this.#put(record, bulk)
    } catch (error) {
      const index = bulk.count
      if (index === 0) this.#context.publisher.take(bulk)
      bulk.joined(payloadBytesOf(record))
      bulk.refuseRecord(record, index, error as MillraceError)
    }
  }

  #put(record: SendableRecord, bulk: BulkCall): void {
    const { publisher, statistics } = this.#context
    const partition = partitionOf(record, bulk.route)
    const accumulator = bulk.isWaiting ? undefined : publisher.acceptor(bulk.name, partition)
    const payloadBytes = payloadBytesOf(record)
    if (accumulator === undefined) this.#hold(record, bulk)
    else {
      accumulator.appendOne(record, bulk, bulk.count)
      if (bulk.count === 0) publisher.take(bulk)
      bulk.joined(payloadBytes)
    }
    statistics.submitted(1, payloadBytes, bulk.startedMs)
  }

  /** The topic is not ready, or has not as many partitions as were heard of: the record waits, and all of its bulk behind it. */
  #hold(record: SendableRecord, bulk: BulkCall): void {
    const { publisher } = this.#context
    const wasWaiting = bulk.isWaiting
    if (bulk.count === 0) publisher.take(bulk)
    bulk.hold(record)
    if (!wasWaiting) publisher.dispatch(bulk)
  }

  #bulkFor(to: Destination): BulkCall {
    const bulk = this.#bulk
    // One whose first record was refused is not begun, so that it would tell a wrong time.
    if (bulk !== undefined && bulk.count > 0 && bulk.route === to.route && sameTopic(bulk.name, to.name)) return bulk
    this.#closeBulk()
    const owner = { nowMs: this.#context.clock.monotonicMs(), settled: this.#bulkSettled }
    this.#bulk = new BulkCall(to.name, to.route, owner)
    return this.#bulk
  }

  #closeBulk(): void {
    const bulk = this.#bulk
    this.#bulk = undefined
    if (bulk !== undefined && bulk.count > 0) bulk.close()
  }

  #sent(bufferBytes: number): void {
    const { batchLength, batchBytes, lingerMs, clock } = this.#context
    this.#sends++
    this.#bytes += bufferBytes
    if (this.#sends >= batchLength || this.#bytes >= batchBytes) this.flush()
    else if (lingerMs === 0) this.flushSoon()
    else this.#timer ??= clock.setTimer(lingerMs, this.#lingered)
  }

  readonly #lingered = (): void => {
    this.#timer = undefined
    this.flush()
  }

  readonly #newGroup = (): DeliveryGroup => {
    const { name, route } = this.#groupTo as Destination
    return new DeliveryGroup(name, route, { nowMs: this.#context.clock.monotonicMs(), settled: this.#groupSettled })
  }

  readonly #groupSettled: GroupSettled = (group, failed) => {
    this.#context.publisher.settled(group, failed)
    this.#context.onSettled(group.bufferBytes, undefined)
  }

  readonly #bulkSettled = (call: BulkCall, failure: PublishFailedError | undefined): void => {
    this.#context.publisher.settled(call, failure !== undefined)
    this.#context.onSettled(call.bufferBytes, failure)
  }

  readonly #delivered: DeliverySettled = (call, failure, observed) => {
    this.#context.publisher.settled(call, failure !== undefined)
    this.#context.onSettled(call.bufferBytes, observed ? undefined : failure)
  }
}

function sameTopic(a: TopicName, b: TopicName): boolean {
  return a === b || (a.stream === b.stream && a.topic === b.topic)
}
