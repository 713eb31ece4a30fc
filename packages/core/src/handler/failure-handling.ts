import type { MillraceError, Position } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { BatchMessage } from "../record/message.ts"
import { TypedDecodeError } from "../typed/typed-decode-error.ts"
import type { Burial, DeadContent } from "./dead-letter-record.ts"
import type { DeadLetterSender } from "./dead-letter-sender.ts"
import type { FailurePlace } from "./handler-failure.ts"
import type { FeedLane } from "./message-feed.ts"
import { tellObserved } from "./observed.ts"
import type { RunSettings } from "./run-options.ts"
import type { LaneBacklog } from "./run-schedule.ts"
import type { Task } from "./task.ts"

/** What a run gets from its consumer. */
export interface RunSurroundings {
  /** How errors call the consumer. */
  readonly what: string
  readonly clock: Clock
  readonly random: Random
  /** Whose handler it is, for dead letters; neither for a consumer without a name. */
  readonly consumer: string | undefined
  readonly group: string | undefined
  /** A record as it lies in the log (`storedRecord`). */
  readonly stored: (position: Position, needed: () => boolean) => Promise<BatchMessage | undefined>
  /** Of `onFailure: deadLetter(topic)`. */
  readonly deadLetters: DeadLetterSender | undefined
}

/** What comes after a failed attempt. */
export type NextStep = "retry" | "skip" | "deadLetter" | "stop"

/** What the run does about failures. */
export interface FailureHost {
  /** The task's message counts as handled, and the task is over. */
  handled(task: Task): void
  /** The task is over; its message is not handled. */
  finish(task: Task): void
  /** The run ends with this. */
  fail(error: unknown): void
  /** Goes past the batch that the partition cannot read. */
  skip(lane: FeedLane): Promise<void>
}

/** What becomes of messages that had their last attempt, and of what cannot be read: `onFailure`, and who is told. */
export class FailureHandling {
  readonly #settings: RunSettings
  readonly #around: RunSurroundings
  readonly #host: FailureHost

  constructor(settings: RunSettings, around: RunSurroundings, host: FailureHost) {
    this.#settings = settings
    this.#around = around
    this.#host = host
  }

  /** Tells `onError`; false when that itself failed, which ends the run. */
  reported(error: MillraceError, next: NextStep): boolean {
    return tellObserved(
      () => this.#settings.onError?.(error, next),
      (thrown) => this.#host.fail(thrown),
    )
  }

  /**
   * The message had its last attempt, or none, because it cannot be read.
   * @param failure.error What `onError` and `run` get; `thrown` is what the handler threw.
   */
  last(task: Task, failure: { readonly thrown: unknown; readonly error: MillraceError }): void {
    const { error, thrown } = failure
    const next = this.#next
    task.phase = "ending"
    const told = this.reported(error, next)
    if (next === "stop") this.#host.fail(error)
    if (next === "deadLetter" && told) this.#buryMessage(task, thrown)
    else if (next === "skip" && told) this.#host.handled(task)
    else this.#host.finish(task)
  }

  /**
   * A batch cannot be read, and everything before it is handled. Settles once the partition is past it, or the run is about to end.
   * @param counts Whether the partition still stands before it: after a hand-over or a seek nothing that comes of this does.
   */
  async batch(lane: FeedLane, error: MillraceError, counts: () => boolean): Promise<void> {
    const next = this.#next
    const told = this.reported(error, next)
    if (next === "stop") this.#host.fail(error)
    if (next === "stop" || !told) return
    try {
      if (next === "deadLetter") await this.#buryUnread(lane, error, counts)
      if (counts()) await this.#host.skip(lane)
    } catch (failed) {
      if (counts()) this.#host.fail(failed)
    }
  }

  /** What a filter has stopped at can be read past it; of anything else there is nothing but the error. */
  async #buryUnread(lane: FeedLane, error: MillraceError, counts: () => boolean): Promise<void> {
    const { offset, fault } = error.context
    const message =
      offset === undefined || fault === undefined
        ? undefined
        : await this.#around.stored({ ...lane.partition, lineage: lane.lineage, offset }, counts)
    if (!counts()) return
    const content = message === undefined ? "none" : "stored"
    await this.#bury({ place: { ...lane.partition, offset }, message, content, thrown: error, attempts: 0 })
  }

  get #next(): NextStep {
    const { onFailure } = this.#settings
    return typeof onFailure === "string" ? onFailure : "deadLetter"
  }

  #buryMessage(task: Task, thrown: unknown): void {
    const { attempt: attempts } = task
    const message = task.message as BatchMessage
    // What no handler has seen did not decrypt, and goes on as it is stored; unless it did decrypt, and then did not decode.
    const content = contentOf(attempts, thrown)
    this.#bury({ place: placeOf(task), message, content, thrown, attempts }).then(
      () => {
        if (task.phase === "void") this.#host.finish(task)
        else this.#host.handled(task)
      },
      (failed) => {
        if (task.phase !== "void") this.#host.fail(failed)
        this.#host.finish(task)
      },
    )
  }

  #bury(burial: Omit<Burial, "timeMicros" | "consumer" | "group">): Promise<void> {
    const { clock, consumer, group, deadLetters } = this.#around
    return (deadLetters as DeadLetterSender).send({ ...burial, timeMicros: clock.nowMicros(), consumer, group })
  }
}

/** What the payload of a dead letter is, whose message was read. @param attempts 0: no handler has seen it. */
export function contentOf(attempts: number, thrown: unknown): DeadContent {
  return attempts === 0 && !(thrown instanceof TypedDecodeError) ? "stored" : "message"
}

/** Where a task's message stands. */
export function placeOf(task: Task): FailurePlace {
  return { ...(task.backlog as LaneBacklog).lane.partition, offset: task.offset }
}
