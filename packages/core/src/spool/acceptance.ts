import { type BatchWriter, MillraceError, type TopicDescription } from "@millrace/contract"
import { backoffMs, type Clock, type Timer } from "@millrace/runtime"
import { longestBackoffMs } from "../client/attempts.ts"
import type { SendResult } from "../producer/confirmation.ts"
import type { Route } from "../producer/routing.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { SpooledRecord } from "./spool-record.ts"
import type { SpoolStore } from "./spool-store.ts"

/** Told of each group that is stored, before those who sent it. */
export interface AcceptanceOwner {
  /** The group's records have the offsets from `base` on. */
  onAccepted(group: AcceptedGroup, base: bigint): void
  /** The group was refused: its room is free. @param isBroken The store is of no use any more: this error says why. */
  onRefused(group: AcceptedGroup, failure: { readonly error: unknown; readonly isBroken: boolean }): void
}

/** What acceptance works with. */
export interface AcceptanceContext {
  readonly store: SpoolStore
  readonly clock: Clock
  /** How long a group may wait for a disk that is full, in ms. 0: not at all; infinite: until the end. */
  readonly patienceMs: number
  readonly owner: AcceptanceOwner
}

/** Sends of one turn, or of the time that the group before took: they share a batch, a sync and a promise. */
export class AcceptedGroup {
  readonly writer: BatchWriter
  readonly sinceMicros: bigint
  /** The same on the monotonic clock. */
  readonly startedMs: number
  readonly promise: Promise<SendResult>
  bytes = 0
  count = 0
  /** Told the offset of the record at an index, when it is stored. */
  readonly listeners: { readonly index: number; readonly told: (offset: bigint) => void }[] = []
  #resolve!: (result: SendResult) => void
  #reject!: (error: unknown) => void

  constructor(writer: BatchWriter, clock: Clock) {
    this.writer = writer
    this.sinceMicros = clock.nowMicros()
    this.startedMs = clock.monotonicMs()
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  accept(): void {
    this.#resolve(accepted)
  }

  refuse(error: unknown): void {
    this.#reject(error)
  }
}

/** A send that was accepted has no confirmations: these come later, and to nobody. */
const accepted: SendResult = { confirmations: [] }

/** The first wait for a disk that is full, in ms. */
const retryMs = 100

/**
 * Writes the records of one lane: into the open group while the one before is being synced, one group at a time and in order. A group is
 * one batch of the store, so it is accepted as a whole or not at all.
 */
export class Acceptance {
  readonly #topic: TopicDescription
  readonly #context: AcceptanceContext
  #open: AcceptedGroup | undefined
  /** Groups that are full. */
  #full: AcceptedGroup[] = []
  #isRunning = false
  #error: MillraceError | undefined
  #timer: Timer | undefined
  #wake: (() => void) | undefined
  #idle: (() => void)[] = []
  readonly #scratch = new SpooledRecord()

  constructor(topic: TopicDescription, context: AcceptanceContext) {
    this.#topic = topic
    this.#context = context
  }

  /** Takes one record into the open group. @throws RecordTooLargeError, and then nothing was taken */
  add(record: SendableRecord, route: Route, bytes: number): AcceptedGroup {
    if (this.#error !== undefined) throw this.#error
    const wire = this.#scratch.fill(record, route)
    try {
      let group = this.#open ?? this.#newGroup()
      if (!group.writer.tryAppend(wire)) {
        this.#full.push(group)
        this.#open = undefined
        group = this.#newGroup()
        group.writer.tryAppend(wire)
      }
      this.#open = group
      group.bytes += bytes
      group.count++
      if (!this.#isRunning) this.#start()
      return group
    } finally {
      wire.clear()
    }
  }

  /** Settles when every group that was begun has settled. */
  settled(): Promise<void> {
    if (!this.#isRunning) return Promise.resolve()
    return new Promise((resolve) => {
      this.#idle.push(resolve)
    })
  }

  /** Takes no more. What waits for a disk that is full waits no longer, and fails with what kept it. */
  close(error: MillraceError): void {
    this.#error ??= error
    this.#timer?.cancel()
    this.#wake?.()
  }

  #newGroup(): AcceptedGroup {
    const { store, clock } = this.#context
    return new AcceptedGroup(store.writer(this.#topic), clock)
  }

  #start(): void {
    this.#isRunning = true
    // Behind all sends of this turn.
    queueMicrotask(() => void this.#run())
  }

  /** Never rejects: a failure reaches those who sent. */
  async #run(): Promise<void> {
    const { owner } = this.#context
    let isBroken = false
    let cause: unknown
    for (let group = this.#next(); group !== undefined; group = this.#next()) {
      try {
        // Behind an append of which nobody knows whether it happened, offsets are not known either.
        if (isBroken) throw this.#error ?? cause
        const base = await this.#append(group)
        owner.onAccepted(group, base)
        group.accept()
      } catch (error) {
        isBroken ||= !isOfTheGroup(error)
        cause ??= error
        owner.onRefused(group, { error, isBroken })
        group.refuse(error)
      }
    }
    this.#isRunning = false
    const idle = this.#idle
    this.#idle = []
    for (const resolve of idle) resolve()
  }

  #next(): AcceptedGroup | undefined {
    const full = this.#full.shift()
    if (full !== undefined) return full
    const open = this.#open
    this.#open = undefined
    return open
  }

  async #append(group: AcceptedGroup): Promise<bigint> {
    const { store, clock, patienceMs } = this.#context
    const sealed = store.seal(group.writer)
    const startedMs = clock.monotonicMs()
    try {
      for (let retry = 0; ; retry++) {
        try {
          return (await store.appendSealed(sealed)).base
        } catch (error) {
          if (!mayPass(error)) throw error
          const waitMs = backoffMs(retry, retryMs, longestBackoffMs)
          if (this.#error !== undefined || clock.monotonicMs() - startedMs + waitMs > patienceMs) throw error
          await this.#rest(waitMs)
          if (this.#error !== undefined) throw error
        }
      }
    } finally {
      sealed.release()
    }
  }

  #rest(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
      this.#timer = this.#context.clock.setTimer(ms, resolve)
    })
  }
}

/** Whether the store refused this group, and may take others: it is known not to be stored, and nothing is wrong with the store. */
function isOfTheGroup(error: unknown): boolean {
  if (!(error instanceof MillraceError) || error.outcome !== "rejected") return false
  return error.retryable || error.kind === "record-too-large" || error.kind === "invalid"
}

/** Whether the same append can be made again: it did not happen, and may happen later. */
function mayPass(error: unknown): boolean {
  return error instanceof MillraceError && error.retryable && error.outcome === "rejected"
}
