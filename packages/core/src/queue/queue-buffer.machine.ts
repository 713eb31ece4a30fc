/**
 * The messages that a queue consumer holds, with the clocks of their waits. Pure: events come in with their time on the monotonic clock,
 * and what to do about them comes out.
 *
 *     a message is   event                                          then
 *     buffered       take, with a quarter of its wait left          taken: the caller's, or running with a handler
 *     buffered       take, with less left                           dropped: told, and given back
 *     buffered       look, a third of its wait is over              extended while the consumer is busy, for two waits; else given back
 *     running        look, a third of its wait is over              extended, for as long as it may be; then left alone
 *     running        look, its wait is over                         lost: the handler's signal fires
 *     running        done                                           gone
 *     either         extended, and the answer is yes                its wait begins when that was asked for
 *     either         extended, and the answer is no                 lost; buffered ones are dropped
 *
 * A wait begins, as far as this side knows, before the request was sent whose answer began it: the deadline here is never behind the
 * queue's. The wall clock has no part in it.
 */

/** What the machine knows of a message. */
export interface HeldMessage {
  /** Infinite where handing out settles. */
  readonly waitMs: number
  readonly cameMs: number
  sinceMs: number
  readonly bytes: number
  extending: boolean
  lost: boolean
}

/** What is to be done after a look. */
export interface LookOutcome<M> {
  /** Their waits are to begin anew. Each is marked `extending` until `extended` says how it went. */
  readonly extend: readonly M[]
  /** They are no longer in the buffer: to be given back. */
  readonly release: readonly M[]
  /** They are no longer in the buffer, and their waits are over. */
  readonly dropped: readonly M[]
  /** Handlers that go on without their message. */
  readonly lost: readonly M[]
}

/** How long messages are kept. */
export interface HoldingLimits {
  /** Whether running messages are extended. */
  readonly autoExtend: boolean
  /** For how long in all; absent: so many waits. */
  readonly maxExtendMs: number | undefined
}

/** Looks in one wait. */
const looksInWait = 6
/** A wait begins anew when one part of so many is over. */
const extendPart = 3
/** A message is handed over with at least one part of so many of its wait left. */
const leastPart = 4
/** How many waits a buffered message is kept, while the consumer is busy. */
const bufferedWaits = 2
/** How many waits a handler may keep its message where nothing else is said. */
const runningWaits = 10

export class QueueBuffer<M extends HeldMessage> {
  readonly #limits: HoldingLimits
  #buffer: M[] = []
  /** Where the buffer begins: those before it are taken. */
  #head = 0
  #bytes = 0
  readonly #running = new Set<M>()

  constructor(limits: HoldingLimits) {
    this.#limits = limits
  }

  /** Messages in the buffer. */
  get count(): number {
    return this.#buffer.length - this.#head
  }

  /** Their bytes. */
  get bytes(): number {
    return this.#bytes
  }

  /** Messages that handlers have. */
  get running(): number {
    return this.#running.size
  }

  /** Those messages. */
  held(): Iterable<M> {
    return this.#running
  }

  /** How long a message that came now could go without a look, in ms; absent while nothing is held that has a wait. */
  lookAfterMs(shortestWaitMs: number): number | undefined {
    if (this.count === 0 && this.#running.size === 0) return undefined
    return shortestWaitMs === Number.POSITIVE_INFINITY ? undefined : shortestWaitMs / looksInWait
  }

  put(message: M): void {
    this.#buffer.push(message)
    this.#bytes += message.bytes
  }

  /** A message that was taken and goes back to where it was. */
  putBack(message: M): void {
    if (this.#head > 0) this.#buffer[--this.#head] = message
    else this.#buffer.unshift(message)
    this.#bytes += message.bytes
  }

  /** The oldest message. `isFresh` says whether it may be handed over. */
  take(): M | undefined {
    if (this.#head === this.#buffer.length) return undefined
    const message = this.#buffer[this.#head] as M
    this.#buffer[this.#head++] = undefined as never
    this.#bytes -= message.bytes
    if (this.#head === this.#buffer.length) {
      this.#buffer = []
      this.#head = 0
    } else if (this.#head >= compactAt && this.#head * 2 > this.#buffer.length) {
      this.#buffer = this.#buffer.slice(this.#head)
      this.#head = 0
    }
    return message
  }

  /** Whether a message may be handed over at this time: enough of its wait is left. */
  isFresh(message: M, nowMs: number): boolean {
    return !message.lost && nowMs - message.sinceMs <= message.waitMs * (1 - 1 / leastPart)
  }

  /** A handler has it. */
  run(message: M): void {
    this.#running.add(message)
  }

  /** Its handler is done. @returns whether it was running */
  done(message: M): boolean {
    return this.#running.delete(message)
  }

  /** The first in the buffer that is like this. */
  find(like: (message: M) => boolean): M | undefined {
    for (let i = this.#head; i < this.#buffer.length; i++) {
      const message = this.#buffer[i] as M
      if (like(message)) return message
    }
    return undefined
  }

  /** All that is in the buffer, which is empty then. */
  drain(): M[] {
    const rest = this.#buffer.slice(this.#head)
    this.#buffer = []
    this.#head = 0
    this.#bytes = 0
    return rest
  }

  /** @param busy Whether somebody handles messages, so that those in the buffer have a prospect. */
  look(nowMs: number, busy: boolean): LookOutcome<M> {
    const outcome = { extend: [] as M[], release: [] as M[], dropped: [] as M[], lost: [] as M[] }
    for (const message of this.#running) this.#lookAtRunning(message, nowMs, outcome)
    if (this.count > 0) this.#lookAtBuffer(nowMs, busy, outcome)
    for (const message of outcome.extend) message.extending = true
    return outcome
  }

  /**
   * @param askedMs When the request began.
   * @param counts Whether it did; absent when nobody knows: the next look tries again.
   */
  extended(message: M, askedMs: number, counts: boolean | undefined): void {
    message.extending = false
    if (counts === true) message.sinceMs = Math.max(message.sinceMs, askedMs)
    else if (counts === false) message.lost = true
  }

  #lookAtRunning(message: M, nowMs: number, outcome: { extend: M[]; lost: M[] }): void {
    const goneMs = nowMs - message.sinceMs
    if (message.lost || goneMs >= message.waitMs) {
      message.lost = true
      this.#running.delete(message)
      outcome.lost.push(message)
      return
    }
    if (!this.#limits.autoExtend || message.extending || goneMs * extendPart < message.waitMs) return
    const mostMs = this.#limits.maxExtendMs ?? message.waitMs * runningWaits
    if (nowMs - message.cameMs < mostMs) outcome.extend.push(message)
  }

  #lookAtBuffer(nowMs: number, busy: boolean, outcome: { extend: M[]; release: M[]; dropped: M[] }): void {
    const kept: M[] = []
    let bytes = 0
    for (const message of this.#buffer.slice(this.#head)) {
      const due = (nowMs - message.sinceMs) * extendPart >= message.waitMs
      if (!this.isFresh(message, nowMs)) {
        outcome.dropped.push(message)
        continue
      }
      if (due && !message.extending) {
        const hopeful = busy && nowMs - message.cameMs < message.waitMs * bufferedWaits
        if (!hopeful) {
          outcome.release.push(message)
          continue
        }
        outcome.extend.push(message)
      }
      kept.push(message)
      bytes += message.bytes
    }
    this.#buffer = kept
    this.#head = 0
    this.#bytes = bytes
  }
}

/** Places before the head that are kept, at most, until the buffer is made anew. */
const compactAt = 1024
