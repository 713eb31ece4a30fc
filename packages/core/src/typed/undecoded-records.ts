import { type DecodeError, MillraceError, type OffsetOwner } from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { DeadLetterSender } from "../handler/dead-letter-sender.ts"
import { contentOf } from "../handler/failure-handling.ts"
import type { Lane, Slice } from "../partition/lane.ts"
import type { BatchMessage } from "../record/message.ts"
import { messageOf } from "./decoded-message.ts"
import type { DecodeFailures, Decoding } from "./decoding.ts"

/** How many records are skipped before timers and sockets have their turn: to find out that one does not decode takes some 20 µs. */
const mostSkippedAtOnce = 256

/** What is known of the consumer. */
interface ConsumerFacts {
  /** How errors call it. */
  readonly what: string
  readonly owner: OffsetOwner | undefined
  /** Of its options. */
  readonly encryptor: Encryptor | false | undefined
  /** The wait before something that may pass is tried again. */
  readonly retryIntervalMs: number
}

/** What the consumer does. */
interface ConsumerHost {
  /** Something was done about the partition's next record: it may be handed out, or passed over. */
  resumed(lane: Lane): void
  /** What could not be done about it is for the next caller to know. */
  failed(error: unknown): void
  skipped(lane: Lane, offset: bigint, error: DecodeError): void
}

/**
 * What a typed consumer does about records that do not decode (`onDecodeError`), and about codecs that have something to fetch before they
 * can (`Codec.prepare`). A partition of which something has to be done first is suspended: nothing more of it is handed out until then.
 */
export class UndecodedRecords {
  readonly #context: ClientContext
  readonly #facts: ConsumerFacts
  readonly #decoding: Decoding
  readonly #host: ConsumerHost
  readonly #deadLetters: DeadLetterSender | undefined
  readonly #prepared = new WeakSet<Slice>()
  readonly #underWay = new Set<Promise<void>>()
  readonly #waits = new Map<Timer, () => void>()
  readonly #abort = new AbortController()
  #told = 0
  #skipped = 0
  /** Since the event loop had its last turn, as far as this knows of it. */
  #skippedAtOnce = 0
  /** Settles with its next one. */
  #turn: Promise<void> | undefined
  #deadLettered = 0

  constructor(
    context: ClientContext,
    of: { readonly facts: ConsumerFacts; readonly decoding: Decoding },
    host: ConsumerHost,
  ) {
    this.#context = context
    this.#facts = of.facts
    this.#decoding = of.decoding
    this.#host = host
    const { onDecodeError } = of.decoding
    if (typeof onDecodeError === "string") return
    const { clock, random, session } = context
    const { what, encryptor = context.encryptor } = of.facts
    const around = { what, clock, random, limits: session.manifest.limits, encryptor }
    this.#deadLetters = new DeadLetterSender(onDecodeError, around)
  }

  get failures(): DecodeFailures {
    return {
      told: this.#told,
      skipped: this.#skipped,
      deliveredRaw: this.#decoding.decoder.rawCount,
      deadLettered: this.#deadLettered,
    }
  }

  fateOf(lane: Lane, message: BatchMessage): "told" | "passed" | "later" {
    const { onDecodeError } = this.#decoding
    if (onDecodeError === "skip") return this.#skippedAtOnce < mostSkippedAtOnce ? "passed" : "later"
    if (typeof onDecodeError === "string") {
      this.#told++
      return "told"
    }
    return lane.dealtWith === message.position.offset ? "passed" : "later"
  }

  /** Sends the dead letter, or lets others have their turn. The partition is suspended when this returns. */
  deal(lane: Lane, message: BatchMessage, error: DecodeError): void {
    if (this.#deadLetters === undefined) {
      this.#suspend(lane, this.#nextTurn(), () => {})
      return
    }
    const { offset } = message.position
    this.#suspend(lane, this.#bury(lane, message, error), () => {
      lane.dealtWith = offset
    })
  }

  passedOver(lane: Lane, message: BatchMessage, error: DecodeError | undefined): void {
    if (error !== undefined && this.#deadLetters === undefined) {
      this.#skipped++
      this.#skippedAtOnce++
      this.#host.skipped(lane, message.position.offset, error)
    } else this.#deadLettered++
  }

  /** Whether the slice can be decoded now. If not, the partition is suspended until it can. */
  prepared(lane: Lane, slice: Slice): boolean {
    if (!this.#decoding.decoder.prepares || this.#prepared.has(slice)) return true
    const preparing = this.#prepare(slice)
    if (preparing === undefined) {
      this.#prepared.add(slice)
      return true
    }
    this.#suspend(lane, this.#untilPrepared(lane, slice, preparing), () => void this.#prepared.add(slice))
    return false
  }

  /** Nothing is tried again from now on. */
  close(): void {
    this.#deadLetters?.close()
    this.#abort.abort()
    for (const end of [...this.#waits.values()]) end()
  }

  /** Settles once nothing is under way any more. */
  async settled(): Promise<void> {
    await Promise.all(this.#underWay)
  }

  /** Nothing more is handed out of the partition until the work is done, unless it is moved or lost meanwhile. Its failure is told. */
  #suspend(lane: Lane, work: Promise<void>, done: () => void): void {
    const suspension = {}
    lane.suspended = suspension
    const end = (failed: boolean, error?: unknown): void => {
      this.#underWay.delete(over)
      if (lane.suspended !== suspension) return
      lane.suspended = undefined
      if (failed) this.#host.failed(error)
      else done()
      this.#host.resumed(lane)
    }
    const over = work.then(
      () => end(false),
      (error) => end(true, error),
    )
    this.#underWay.add(over)
  }

  #nextTurn(): Promise<void> {
    this.#turn ??= this.#wait(0).then(() => {
      this.#turn = undefined
      this.#skippedAtOnce = 0
    })
    return this.#turn
  }

  #bury(lane: Lane, message: BatchMessage, error: DecodeError): Promise<void> {
    const { owner } = this.#facts
    const letters = this.#deadLetters as DeadLetterSender
    return letters.send({
      place: { ...lane.partition, offset: message.position.offset },
      message,
      content: contentOf(0, error),
      thrown: error,
      attempts: 0,
      timeMicros: this.#context.clock.nowMicros(),
      consumer: owner?.kind === "consumer" ? owner.name : undefined,
      group: owner?.kind === "group" ? owner.name : undefined,
    })
  }

  /** Asks the codec. What it throws counts as its rejection. */
  #prepare(slice: Slice): Promise<void> | undefined {
    const { codec } = this.#decoding.decoder
    try {
      return codec.prepare?.(messagesOf(slice), { signal: this.#abort.signal })
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Tries again what may pass, as long as the partition is read from there: like a poll that fails. */
  async #untilPrepared(lane: Lane, slice: Slice, first: Promise<void>): Promise<void> {
    const suspended = (): boolean => lane.live && lane.suspended !== undefined && !this.#abort.signal.aborted
    for (let preparing: Promise<void> | undefined = first; ; preparing = this.#prepare(slice)) {
      try {
        await preparing
        return
      } catch (error) {
        const passing = error instanceof MillraceError && error.retryable
        if (!passing || !suspended()) throw error
      }
      await this.#wait(this.#facts.retryIntervalMs)
      if (!suspended()) return
    }
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        timer.cancel()
        this.#waits.delete(timer)
        resolve()
      }
      const timer = this.#context.clock.setTimer(ms, end)
      this.#waits.set(timer, end)
    })
  }
}

/** What of the slice is not handed out, as far as it decrypts: the codec sees what it will have to decode. */
function messagesOf(slice: Slice): BatchMessage[] {
  const messages: BatchMessage[] = []
  const source = { ...slice.source, decoder: undefined }
  for (let index = slice.index; index < slice.count; index++) {
    try {
      messages.push(messageOf(source, index).open())
    } catch {
      // It is told in its place.
    }
  }
  return messages
}
