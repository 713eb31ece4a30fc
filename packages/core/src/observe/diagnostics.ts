/**
 * What Millrace tells on `node:diagnostics_channel`: one channel a kind of event, its messages typed. Publishing costs one look at
 * `hasSubscribers` while nobody listens; where a message has to be put together, look first and build it only then. Subscribers run
 * within the publishing call and must be quick; Node reports one that throws as an uncaught exception.
 */
import { type Channel, channel } from "node:diagnostics_channel"
import type { ConnectionChange, MillraceError, TopicPartition } from "@millrace/contract"

/** A channel whose messages have one type. */
export interface DiagnosticsChannel<T extends object> {
  /** For `diagnostics_channel.subscribe(name, …)`. */
  readonly name: string
  readonly hasSubscribers: boolean
  publish(message: T): void
}

/** One batch of a producer. */
export interface BatchEvent extends TopicPartition {
  readonly records: number
  /** Which attempt the event speaks of, from 1. */
  readonly attempt: number
}

/** `millrace:producer.batch.sent`: the backend confirmed the batch. */
export interface BatchSent extends BatchEvent {
  /** From the first attempt to the confirmation. */
  readonly durationMs: number
  /** Of the first record, where the backend tells. */
  readonly baseOffset: bigint | undefined
  /** How many records the backend had already. */
  readonly duplicates: number
}

/** `millrace:producer.batch.retried`: an attempt failed, and the batch goes out again. Published when it does. */
export interface BatchRetried extends BatchEvent {
  /** What the attempt before failed with. */
  readonly error: MillraceError | undefined
}

/** `millrace:producer.batch.failed`: the batch was given up; its sends fail. */
export interface BatchFailed extends BatchEvent {
  readonly error: MillraceError
}

/** `millrace:producer.backpressure`: a send met a full buffer. */
export interface Backpressure {
  readonly stream: string
  readonly topic: string
  /** `waits`: until there is room. `refused`: the send failed with BufferFullError. */
  readonly outcome: "waits" | "refused"
  /** Accepted and not settled, in bytes. */
  readonly bufferedBytes: number
  readonly maxBufferBytes: number
}

/** `millrace:producer.spool`: what the spool of a producer does. */
export interface SpoolEvent {
  /** The producer's own topic. */
  readonly stream: string
  readonly topic: string
  readonly directory: string
  /**
   * `resumed`: records of an earlier run were found. `forwarded`: records were delivered, or handed over as refused, and their room is
   * free again. `full`: a send met `maxSpoolBytes`. `stopped`: the spool takes and forwards no more; see `error`.
   */
  readonly what: "resumed" | "forwarded" | "full" | "stopped"
  /** What is left: accepted and not delivered. */
  readonly waitingRecords: number
  readonly waitingBytes: number
  /** Why the spool has stopped. */
  readonly error?: MillraceError
}

/** `millrace:statistics.failed`: a report of producer statistics was not sent. Publishing goes on. */
export interface StatisticsFailed {
  /** Which part failed. */
  readonly step: "connect" | "send"
  readonly error: unknown
}

/** `millrace:connection.lost`: a server is gone. */
export type ConnectionLost = ConnectionChange & { readonly state: "lost" }

/** `millrace:connection.restored`: it, or another in its place, answers again. */
export type ConnectionRestored = ConnectionChange & { readonly state: "restored" }

/** The channels by the last part of their names. All begin with `millrace:`. */
export interface DiagnosticsChannels {
  readonly "producer.batch.sent": DiagnosticsChannel<BatchSent>
  readonly "producer.batch.retried": DiagnosticsChannel<BatchRetried>
  readonly "producer.batch.failed": DiagnosticsChannel<BatchFailed>
  readonly "producer.backpressure": DiagnosticsChannel<Backpressure>
  readonly "producer.spool": DiagnosticsChannel<SpoolEvent>
  readonly "statistics.failed": DiagnosticsChannel<StatisticsFailed>
  readonly "connection.lost": DiagnosticsChannel<ConnectionLost>
  readonly "connection.restored": DiagnosticsChannel<ConnectionRestored>
}

class TypedChannel<T extends object> implements DiagnosticsChannel<T> {
  readonly #channel: Channel

  constructor(untyped: Channel) {
    this.#channel = untyped
  }

  get name(): string {
    return this.#channel.name as string
  }

  get hasSubscribers(): boolean {
    return this.#channel.hasSubscribers
  }

  publish(message: T): void {
    if (this.#channel.hasSubscribers) this.#channel.publish(message)
  }
}

/** Every channel that Millrace publishes on. Node keeps channels by name: two copies of the package share them. */
export const diagnostics: DiagnosticsChannels = Object.freeze({
  "producer.batch.sent": typed<BatchSent>("producer.batch.sent"),
  "producer.batch.retried": typed<BatchRetried>("producer.batch.retried"),
  "producer.batch.failed": typed<BatchFailed>("producer.batch.failed"),
  "producer.backpressure": typed<Backpressure>("producer.backpressure"),
  "producer.spool": typed<SpoolEvent>("producer.spool"),
  "statistics.failed": typed<StatisticsFailed>("statistics.failed"),
  "connection.lost": typed<ConnectionLost>("connection.lost"),
  "connection.restored": typed<ConnectionRestored>("connection.restored"),
})

/** For `ConnectionWatch.listen`: passes on what a driver tells of its connections. */
export function publishConnectionChange(change: ConnectionChange): void {
  if (change.state === "lost") diagnostics["connection.lost"].publish(change)
  else diagnostics["connection.restored"].publish(change)
}

function typed<T extends object>(name: string): DiagnosticsChannel<T> {
  return new TypedChannel<T>(channel(`millrace:${name}`))
}
