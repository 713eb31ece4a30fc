import {
  type MillraceError,
  NotFoundError,
  type QueueDelivery,
  type QueueSession,
  type TopicName,
} from "@millrace/contract"
import type { Clock, Random, Timer } from "@millrace/runtime"
import { Callers, type Waiter } from "../consumer/callers.ts"
import type { RecordOpener } from "../encryption/encryptor.ts"
import { asMillraceError } from "../partition/failure.ts"
import type { MessageSource } from "../record/message.ts"
import type { RecordDecoder } from "../typed/record-decoder.ts"
import { PrefetchMachine } from "./prefetch.machine.ts"
import { QueueBuffer } from "./queue-buffer.machine.ts"
import type { QueueConsumerSettings } from "./queue-consumer-options.ts"
import type { QueueEvents } from "./queue-events.ts"
import { type MessageDesk, QueuedMessage } from "./queue-message.ts"
import { QueuePreparing } from "./queue-preparing.ts"
import { type PumpHost, QueuePump } from "./queue-pump.ts"
import { overdue, shortestWaitMs, waitOf } from "./queue-waits.ts"
import type { SettlementDesk } from "./settlement-desk.ts"
import { ValuedMessage } from "./valued-message.ts"

/** What the intake needs of its consumer. */
export interface IntakeHost extends MessageDesk {
  /** It was handed out more often than it may be worked on. */
  exhausted(message: QueuedMessage): void
  /** How many messages are on their way to the dead-letter topic. */
  readonly burying: number
}

export interface IntakeParts {
  readonly session: QueueSession
  readonly clock: Clock
  readonly random: Random
  readonly topic: TopicName
  readonly opener: RecordOpener | undefined
  readonly decoder: RecordDecoder | undefined
  readonly settings: QueueConsumerSettings
  readonly desk: SettlementDesk
  readonly events: QueueEvents
  readonly host: IntakeHost
}

/** A caller that waits for messages. */
export interface Demand extends Waiter {
  /** How many it would take. */
  readonly want: number
}

/** Messages of one request. */
const mostInPull = 10_000
/** When messages come again that a codec could not be prepared for, in ms. */
const unpreparedMs = 1000
/** Dead letters that are on their way, before nothing more is taken. */
const mostBurying = 1000

/** The messages that a consumer holds: takes them from the queue for callers that wait, and watches over their waits. */
export class QueueIntake implements PumpHost {
  readonly buffer: QueueBuffer<QueuedMessage>
  readonly callers: Callers = new Callers()
  readonly prefetch: PrefetchMachine
  readonly #parts: IntakeParts
  readonly #pump: QueuePump
  readonly #waitMs: number
  readonly #preparing: QueuePreparing | undefined
  /** How often all that is not in hands went back. */
  #restarts = 0
  #demand = 0
  #look: Timer | undefined
  #ended = false
  #closed = false
  #tookMs = Number.NEGATIVE_INFINITY
  /** What was taken ahead went back, since nobody wanted it: nothing more is, until somebody does. */
  #quiet = false

  constructor(parts: IntakeParts) {
    this.#parts = parts
    const { settings, session, clock, random } = parts
    this.#waitMs = shortestWaitMs(session.spec)
    const { decoder } = parts
    this.#preparing = decoder?.prepares ? new QueuePreparing(decoder, clock) : undefined
    this.buffer = new QueueBuffer(settings)
    this.prefetch = new PrefetchMachine(settings.prefetch, this.#waitMs)
    this.#pump = new QueuePump({ session, clock, random, host: this })
  }

  /** The oldest message that may be handed over. @throws a failure that waits for a caller */
  take(): QueuedMessage | undefined {
    this.callers.assertNone()
    return this.takeQuietly()
  }

  /** The same, past failures that wait. */
  takeQuietly(): QueuedMessage | undefined {
    const { buffer } = this
    for (;;) {
      const message = buffer.take()
      if (message === undefined) return undefined
      const nowMs = this.#parts.clock.monotonicMs()
      if (buffer.isFresh(message, nowMs)) {
        this.#tookMs = nowMs
        this.#quiet = false
        if (buffer.count * 2 <= this.prefetch.ahead) this.#pump.wake()
        return message
      }
      this.#drop([message])
    }
  }

  /** A message that was taken and not looked at: the next caller gets it. */
  putBack(message: QueuedMessage): void {
    this.buffer.putBack(message)
  }

  /** Queues a caller that found nothing. The answer takes it out again, and is false when it was served. */
  wait(demand: Demand): () => boolean {
    const { want } = demand
    this.#demand += want
    const gone = (): void => {
      this.#demand -= want
    }
    const leave = this.callers.wait({
      serve: () => {
        const served = demand.serve()
        if (served) gone()
        return served
      },
      failed: (error) => {
        gone()
        demand.failed(error)
      },
      ended: () => {
        gone()
        demand.ended()
      },
    })
    this.#quiet = false
    this.#pump.resume()
    return () => {
      const left = leave()
      if (left) gone()
      return left
    }
  }

  /** Asks the queue once for what is there. @throws what the request failed with */
  async fetch(maxMessages: number): Promise<void> {
    await this.#pump.fetch(maxMessages)
  }

  /** The next caller gets this failure, or one that waits. */
  fail(error: unknown): void {
    this.callers.fail(error)
    this.callers.serve()
  }

  /** A handler, or a dead letter on its way, has the message: its wait is extended. */
  hold(message: QueuedMessage): void {
    this.buffer.run(message)
    this.#arm()
  }

  /** It has it no more. */
  free(message: QueuedMessage): void {
    this.buffer.done(message)
    if (this.#parts.host.burying === mostBurying - 1) this.#pump.wake()
  }

  /**
   * For `ackPolicy: "all"`: a message has failed, and what comes behind it may not be acknowledged before it. Everything that is not in
   * hands goes back to the queue, also what is on its way, and nothing is asked for until all of that is answered.
   * @returns to be called when the failed message has gone back or is gone; with false when nobody knows, which its wait decides then
   */
  restart(waitMs: number): (known: boolean) => void {
    this.#restarts++
    this.#pump.discard()
    const unblock = this.#pump.block(waitMs)
    this.#giveBack(this.buffer.drain())
    return unblock
  }

  /** The first offset of a partition that is in the buffer: an ack behind it would cover it. */
  lowestOffset(partition: number): bigint | undefined {
    return this.buffer.find((message) => message.partition === partition)?.offset
  }

  /** It goes back to the queue, and all that is not in hands with it: what stands before it has to come first. */
  defer(message: QueuedMessage): void {
    const unblock = this.restart(message.waitMs)
    this.#giveBack([message])
    unblock(true)
  }

  /** Callers that wait are told, and nothing more is handed out. What is in the buffer goes back. */
  end(): void {
    this.#ended = true
    this.callers.ended = true
    this.callers.serve()
    this.#preparing?.end()
    this.#giveBack(this.buffer.drain())
    this.#pump.end()
  }

  /** Behind the end of the session. Settles when nothing is under way. */
  async close(): Promise<void> {
    this.#closed = true
    this.#look?.cancel()
    await this.#pump.close()
  }

  // ---- for the pump ----------------------------------------------------------------------------------------

  get want(): number {
    if (this.#parts.host.burying >= mostBurying) return 0
    const { count, bytes } = this.buffer
    const { ahead } = this.prefetch
    if (this.#demand === 0 && (this.#quiet || count * 2 > ahead)) return 0
    const room = bytes < this.#parts.settings.maxBytes ? ahead - count : 0
    return Math.min(mostInPull, Math.max(0, this.#demand + room))
  }

  get roomBytes(): number {
    return Math.max(1, this.#parts.settings.maxBytes - this.buffer.bytes)
  }

  received(deliveries: readonly QueueDelivery[], askedMs: number, current: boolean): void {
    const { events } = this.#parts
    const messages = this.#messagesOf(deliveries, askedMs)
    events.counts.received += messages.length
    if (this.#ended || !current) {
      this.#giveBack(messages)
      return
    }
    const preparing = this.#preparing?.prepare(messages as ValuedMessage[])
    if (preparing === undefined) this.#accept(messages)
    else void this.#acceptPrepared(messages, preparing)
  }

  failedForGood(error: MillraceError): void {
    // What a queue that is gone has handed out is gone with it.
    if (error instanceof NotFoundError) this.buffer.drain()
    this.#tellCaller(error)
  }

  // ---- helpers ---------------------------------------------------------------------------------------------

  #accept(messages: readonly QueuedMessage[]): void {
    // What is handed out again comes in the order in which it fell due; an ack covers by the order of the log.
    this.#put(this.#ordered ? [...this.buffer.drain(), ...messages].sort(byOffset) : messages)
    this.callers.serve()
    this.#arm()
  }

  /** Their waits are extended meanwhile, and nothing more is asked for. Never rejects: a caller gets the failure. */
  async #acceptPrepared(messages: readonly QueuedMessage[], preparing: Promise<void>): Promise<void> {
    const restarts = this.#restarts
    const unblock = this.#pump.block(0)
    for (const message of messages) this.buffer.run(message)
    this.#arm()
    let failure: MillraceError | undefined
    try {
      await preparing
    } catch (error) {
      failure = asMillraceError(error)
    }
    for (const message of messages) this.buffer.done(message)
    if (failure !== undefined && !this.#ended) this.#tellCaller(failure)
    if (failure !== undefined || this.#ended || restarts !== this.#restarts) this.#giveBack(messages, unpreparedMs)
    else this.#accept(messages)
    unblock(true)
  }

  /** One that waits, else the next one. */
  #tellCaller(error: MillraceError): void {
    if (this.callers.waiting) this.callers.refuse(error)
    else this.callers.fail(error)
  }

  #put(messages: readonly QueuedMessage[]): void {
    const { host, session } = this.#parts
    const { maxDeliver = Number.POSITIVE_INFINITY } = session.spec
    for (const [i, message] of messages.entries()) {
      if (message.deliveries <= maxDeliver) {
        this.buffer.put(message)
        continue
      }
      host.exhausted(message)
      if (!this.#ordered) continue
      // They come again once this one is gone. What was put before it went back already.
      this.#giveBack(messages.slice(i + 1))
      return
    }
  }

  #messagesOf(deliveries: readonly QueueDelivery[], sinceMs: number): QueuedMessage[] {
    const { host, session, topic, opener, decoder } = this.#parts
    const { spec } = session
    const messages: QueuedMessage[] = []
    let source: MessageSource | undefined
    let bytes = 0
    for (const { batch, partition, offset, lineage, index, deliveries: count, token } of deliveries) {
      if (source?.batch !== batch || source.partition !== partition || source.lineage !== lineage) {
        const { stream, topic: name } = topic
        const end = batch.lastOffset + 1n
        source = { batch, stream, topic: name, partition, lineage, claim: undefined, end, opener, decoder }
        bytes = Math.ceil(batch.bytes / Math.max(1, batch.count))
      }
      const terms = { token, deliveries: count, waitMs: waitOf(spec, count), sinceMs, bytes, index, offset }
      messages.push(
        decoder === undefined
          ? new QueuedMessage(host, source, terms)
          : new ValuedMessage(host, source, { ...terms, decoder }),
      )
    }
    return messages
  }

  #arm(): void {
    if (this.#look !== undefined || this.#closed) return
    const afterMs = this.buffer.lookAfterMs(this.#waitMs)
    if (afterMs === undefined) return
    this.#look = this.#parts.clock.setTimer(afterMs, () => {
      this.#look = undefined
      this.#lookAt()
      this.#arm()
    })
  }

  #lookAt(): void {
    const nowMs = this.#parts.clock.monotonicMs()
    const busy = this.buffer.running > 0 || nowMs - this.#tookMs < this.#waitMs / 3
    const { extend, release, dropped, lost } = this.buffer.look(nowMs, busy)
    for (const message of extend) this.#extend(message)
    this.#giveBack(release)
    this.#drop(dropped)
    for (const message of lost) message.attempt?.abort(overdue(this.#parts.host.what))
    if (release.length + dropped.length === 0) return
    this.#quiet = true
    if (this.#ordered) this.#giveBack(this.buffer.drain())
  }

  #extend(message: QueuedMessage): void {
    const { desk, events } = this.#parts
    const answered = (askedMs: number, counts: boolean | undefined): void => {
      this.buffer.extended(message, askedMs, counts)
      if (counts) events.counts.extended++
      else if (counts === false && this.buffer.done(message)) message.attempt?.abort(overdue(this.#parts.host.what))
    }
    desk.settle(
      { token: message.token, verdict: "inProgress" },
      {
        settled: (counts, askedMs) => answered(askedMs, counts),
        failed: (error) => {
          answered(0, undefined)
          if (!this.#ended) events.tell("failed", error)
        },
      },
      false,
    )
  }

  /** Their waits are over, or nearly. */
  #drop(messages: readonly QueuedMessage[]): void {
    const { events } = this.#parts
    for (const message of messages) {
      events.counts.dropped++
      this.#nak(message)
      events.tell("dropped", { position: message.position, deliveries: message.deliveries })
    }
    if (this.#ordered && messages.length > 0) this.#giveBack(this.buffer.drain())
  }

  #giveBack(messages: readonly QueuedMessage[], delayMs = 0): void {
    this.#parts.events.counts.released += messages.length
    for (const message of messages) this.#nak(message, delayMs)
  }

  /** So that others get it at once. Where that fails it comes again when its wait is over. */
  #nak(message: QueuedMessage, delayMs = 0): void {
    const { desk, session } = this.#parts
    if (session.spec.ackPolicy === "none") return
    message.verdict = "nak"
    const unblock = this.#ordered ? this.#pump.block(message.waitMs) : undefined
    const sink = { settled: (): void => unblock?.(true), failed: (): void => unblock?.(false) }
    desk.settle({ token: message.token, verdict: "nak", delayMs }, sink, false)
  }

  /** An ack covers those before it. */
  get #ordered(): boolean {
    return this.#parts.session.spec.ackPolicy === "all"
  }
}

function byOffset(a: QueuedMessage, b: QueuedMessage): number {
  if (a.partition !== b.partition) return a.partition - b.partition
  return a.offset < b.offset ? -1 : a.offset > b.offset ? 1 : 0
}
