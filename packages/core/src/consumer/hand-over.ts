/**
 * Hands messages to the caller one by one: a fair merge of the partitions, in pages of `batchLength`, that keeps track of what was
 * handed out and what of it is handled.
 *
 * The hot path is a window: a run of records of one batch, of which `next` takes one after the other. Everything else (the next
 * partition, the next page, waiting callers, failures) happens between two windows.
 */
import { BatchMessage, type Message, type MessageSource } from "../record/message.ts"
import type { Lane, Slice } from "./lane.ts"

/** Who waits for a message. Called once, by one of the three. */
interface Waiter {
  message(message: Message): void
  failed(error: unknown): void
  /** The consumer was shut down. */
  ended(): void
}

/** What the consumer does about what happens here. */
interface HandOverHost {
  /** Everything of the partition before `next` is handled; `open` messages of any partition are not. */
  handled(lane: Lane, next: bigint, open: number): void
  /** The next page is asked for. */
  pollStarted(open: number): void
  /** A slice was handed out in full, or thrown away. */
  finished(slice: Slice): void
  /** The partition's error was handed out. */
  errorTaken(lane: Lane): void
  /** Whether a store must come first (policy `each`). */
  readonly held: boolean
}

/** A message that is handed out and not handled yet. */
interface Open {
  readonly lane: Lane
  readonly offset: bigint
  /** Progress once it is handled. */
  next: bigint
}

/** Failures that wait for a caller; later ones are of the same cause. */
const failuresKept = 16

export class HandOver {
  readonly #host: HandOverHost
  readonly #pageLength: number
  readonly #windowLength: number
  // The window. `#index` is the next record of it; closed when it has reached `#end`.
  #source: MessageSource | undefined
  #index = 0
  #end = 0
  #slice: Slice | undefined
  #lane: Lane | undefined
  /** Partitions with something to hand out, the next one first. */
  #queue: Lane[] = []
  #waiters: Waiter[] = []
  #open: Open[] = []
  #pageLeft: number
  #failures: unknown[] = []
  #fatal: unknown
  #abandoned = false
  #ended = false
  #clearings: { readonly lane: Lane; readonly resolve: () => void }[] = []

  /** @param one Every message is a page of its own as far as windows go (policy `each`). */
  constructor(host: HandOverHost, pageLength: number, { one }: { readonly one: boolean }) {
    this.#host = host
    this.#pageLength = pageLength
    this.#windowLength = one ? 1 : pageLength
    this.#pageLeft = pageLength
  }

  /**
   * The next message, when one is there. The call says that everything handed out before is handled.
   * @throws What the consumer has to tell: a partition's error in its place, a failed store, the end of the membership.
   */
  take(): BatchMessage | undefined {
    const index = this.#index
    if (index < this.#end) {
      this.#index = index + 1
      return this.#opened(new BatchMessage(this.#source as MessageSource, index))
    }
    this.acknowledge()
    if (this.#waiters.length > 0) return undefined
    if (this.#queue.length === 0) this.#startPage()
    return this.#advance()
  }

  /** Everything that was handed out is handled: the caller asks for more. */
  acknowledge(): void {
    this.settle()
    this.#abandoned = false
    this.#acknowledge()
  }

  /** Whether the consumer was shut down. */
  get ended(): boolean {
    return this.#ended
  }

  /** Queues a caller for whom `take` had nothing. The answer takes it out again, and is false when it was served. */
  wait(waiter: Waiter): () => boolean {
    this.#waiters.push(waiter)
    return () => {
      const index = this.#waiters.indexOf(waiter)
      if (index >= 0) this.#waiters.splice(index, 1)
      return index >= 0
    }
  }

  /** Serves waiting callers, in order, as far as it goes. To be called whenever something has changed. */
  serve(): void {
    for (;;) {
      const waiter = this.#waiters[0]
      if (waiter === undefined) return
      let message: BatchMessage | undefined
      try {
        message = this.#advance()
      } catch (error) {
        this.#waiters.shift()
        waiter.failed(error)
        continue
      }
      if (message === undefined && !this.#ended) return
      this.#waiters.shift()
      if (message === undefined) waiter.ended()
      else {
        this.settle()
        waiter.message(message)
      }
    }
  }

  /** The partition has something to hand out. */
  offer(lane: Lane): void {
    if (lane.queued || lane === this.#lane || !lane.live || lane.draining) return
    if (lane.slice === undefined && lane.error === undefined) return
    lane.queued = true
    this.#queue.push(lane)
  }

  /** Progress behind everything of the partition that was read becomes `next`. */
  extend(lane: Lane, next: bigint): void {
    this.settle()
    if (lane.extend(next)) return
    lane.handedNext = next
    const open = this.#open.findLast((one) => one.lane === lane)
    if (open === undefined) this.#host.handled(lane, next, this.#open.length)
    else open.next = next
  }

  /** Throws away what was read of a partition and not handed out. With `open` also what is not handled yet. */
  drop(lane: Lane, { open }: { readonly open: boolean }): void {
    this.settle()
    for (const slice of lane.clear()) this.#host.finished(slice)
    if (lane.queued) this.#queue.splice(this.#queue.indexOf(lane), 1)
    lane.queued = false
    if (!open) return
    this.#open = this.#open.filter((one) => one.lane !== lane)
    this.#tellCleared()
  }

  /** Everything of the partition before `next` is handled, because the caller says so. */
  mark(lane: Lane, next: bigint): void {
    this.#open = this.#open.filter((one) => one.lane !== lane || one.offset >= next)
    this.#host.handled(lane, next, this.#open.length)
    this.#tellCleared()
  }

  /** Settles once nothing of the partition is handed out and unhandled. */
  whenClear(lane: Lane): Promise<void> {
    this.settle()
    if (!this.#open.some((one) => one.lane === lane)) return Promise.resolve()
    return new Promise((resolve) => this.#clearings.push({ lane, resolve }))
  }

  /** The next caller gets this failure. */
  fail(error: unknown): void {
    if (this.#failures.length < failuresKept) this.#failures.push(error)
    this.settle()
    this.serve()
  }

  /** Every caller gets this failure from now on. */
  failForGood(error: unknown): void {
    this.#fatal ??= error
    this.settle()
    this.serve()
  }

  /** Whether a failure waits for a caller. */
  get failing(): boolean {
    return this.#failures.length > 0
  }

  /** The loop that read was left early: whether its last message was handled is not known, so that it is not until the next read. */
  abandon(): void {
    this.settle()
    this.#abandoned = true
  }

  /** Nothing is handed out any more. @param last Whether the last message counts as handled, unless its loop was left early. */
  end({ last }: { readonly last: boolean }): void {
    this.settle()
    if (last && !this.#abandoned) this.#acknowledge()
    this.#ended = true
    this.serve()
  }

  /** Writes the window back to its partition: its last message is open, those before are handled. */
  settle(): void {
    const lane = this.#lane
    const slice = this.#slice
    if (lane === undefined || slice === undefined) return
    const index = this.#index
    const handed = index - slice.index
    this.#lane = undefined
    this.#slice = undefined
    this.#source = undefined
    this.#end = 0
    this.#index = 0
    this.#pageLeft -= handed
    const offset = slice.source.batch.offset(index - 1)
    const whole = index === slice.count
    const next = whole ? slice.after : offset + 1n
    slice.index = index
    lane.handedOffset = offset
    lane.handedNext = next
    if (handed > 1) this.#host.handled(lane, offset, 1)
    this.#open.push({ lane, offset, next })
    if (whole) {
      lane.shift()
      this.#host.finished(slice)
    }
    this.offer(lane)
  }

  #acknowledge(): void {
    const open = this.#open
    if (open.length === 0) return
    this.#open = []
    for (const one of open) if (one.lane.live) this.#host.handled(one.lane, one.next, 0)
    this.#tellCleared()
  }

  #startPage(): void {
    this.#pageLeft = this.#pageLength
    this.#host.pollStarted(this.#open.length)
  }

  #advance(): BatchMessage | undefined {
    if (this.#fatal !== undefined) throw this.#fatal
    if (this.#failures.length > 0) throw this.#failures.shift()
    if (this.#ended) return undefined
    if (this.#pageLeft <= 0) this.#startPage()
    if (this.#host.held) return undefined
    return this.#openWindow()
  }

  #openWindow(): BatchMessage | undefined {
    for (let lane = this.#queue.shift(); lane !== undefined; lane = this.#queue.shift()) {
      lane.queued = false
      const slice = lane.slice
      if (slice === undefined) {
        const error = lane.error
        if (error === undefined) continue
        lane.error = undefined
        this.#host.errorTaken(lane)
        throw error
      }
      const index = slice.index
      this.#lane = lane
      this.#slice = slice
      this.#source = slice.source
      this.#end = Math.min(slice.count, index + Math.min(this.#pageLeft, this.#windowLength))
      this.#index = index + 1
      return this.#opened(new BatchMessage(slice.source, index))
    }
    return undefined
  }

  /**
   * A record that cannot be decrypted was handed out as an error. Like a message it is not handled before more is asked for, and unlike
   * one it is not handled by a shutdown either: nobody has seen it.
   */
  #opened(message: BatchMessage): BatchMessage {
    try {
      return message.open()
    } catch (error) {
      this.settle()
      this.#abandoned = true
      throw error
    }
  }

  #tellCleared(): void {
    if (this.#clearings.length === 0) return
    const waiting = this.#clearings
    this.#clearings = []
    for (const one of waiting) {
      if (this.#open.some((open) => open.lane === one.lane)) this.#clearings.push(one)
      else one.resolve()
    }
  }
}
