import { CancelledError, type MillraceError } from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import { signalFired } from "../client/signal-fired.ts"
import type { BatchMessage } from "../record/message.ts"
import { FailureHandling, placeOf, type RunSurroundings } from "./failure-handling.ts"
import {
  AttemptContext,
  type ContextOwner,
  callersContext,
  callingAttempt,
  type Handler,
  outside,
} from "./handler-context.ts"
import { handlerFailure, placeText } from "./handler-failure.ts"
import { HandlerRunMachine, type RunEnding, type RunEvent } from "./handler-run.machine.ts"
import { IdleWaits } from "./idle-waits.ts"
import type { FeedLane, FeedUser, MessageFeed } from "./message-feed.ts"
import { isThenable } from "./observed.ts"
import { poisonOf } from "./poison.ts"
import { jittered, retryDelayMs } from "./retry.ts"
import type { RunSettings } from "./run-options.ts"
import { type LaneBacklog, RunSchedule } from "./run-schedule.ts"
import { type Task, type TaskOwner, TaskPool } from "./task.ts"
import { unfinished } from "./unfinished.ts"

/**
 * Calls a handler for each message of a feed, many at a time, and says of each when it is handled. One pump starts what may start; whatever
 * frees a place or brings a message wakes it.
 */
export class HandlerRun implements FeedUser, TaskOwner, ContextOwner {
  readonly #handler: Handler
  readonly #settings: RunSettings
  readonly #around: RunSurroundings
  readonly #machine = new HandlerRunMachine()
  readonly #schedule: RunSchedule
  readonly #result = Promise.withResolvers<void>()
  #feed: MessageFeed | undefined
  /** Handlers, dead letters on their way, and batches that are being skipped. */
  #busy = 0
  #pumping = false
  /** Whether the next start is to come from the log, when both have something. */
  #fromLog = false
  /** The log had nothing a moment ago. */
  #dry = false
  /** The consumer takes care of what is unhandled: it ends. */
  #consumerEnds = false
  readonly #tasks = new TaskPool(this, callersContext())
  #deadline: Timer | undefined
  #forgetSignal = (): void => {}
  readonly #waits: IdleWaits
  readonly #failures: FailureHandling

  constructor(handler: Handler, settings: RunSettings, around: RunSurroundings) {
    this.#handler = handler
    this.#settings = settings
    this.#around = around
    this.#waits = new IdleWaits(around.clock)
    this.#failures = new FailureHandling(settings, around, {
      handled: (task) => this.#handled(task),
      finish: (task) => this.#finish(task),
      fail: (error) => this.#fail(error),
      skip: async (lane) => await this.#feed?.skip(lane),
    })
    this.#schedule = new RunSchedule(settings.order, settings.maxAhead, {
      hold: (lane) => this.#feed?.hold(lane),
      free: (lane) => this.#feed?.free(lane),
    })
  }

  /**
   * Runs until the consumer ends, `stop` is called, the signal fires, or a failure stops it; then until what runs has finished.
   * @throws the failure; CancelledError for the signal; TimeoutError when handlers have not finished in time
   */
  async over(feed: MessageFeed): Promise<void> {
    this.#feed = feed
    const { signal } = this.#settings
    const cancel = (): void => this.#fail(signalFired(this.#around.what, signal))
    signal?.addEventListener("abort", cancel, { once: true })
    this.#forgetSignal = () => signal?.removeEventListener("abort", cancel)
    if (signal?.aborted) cancel()
    outside(() => this.#pump())
    await this.#result.promise
  }

  /** A handler has called the consumer's shutdown: what that fails with is the run's to tell. */
  tellsShutdown = false

  shutdownCalled(): void {
    this.tellsShutdown = true
  }

  stop(): void {
    this.#step({ type: "end", ending: { kind: "well" }, busy: this.#busy > 0 })
  }

  // ---- what the consumer tells ----------------------------------------------------------------------------

  ready(): void {
    this.#schedule.unpark()
    // Whoever calls: what starts now is not the work of the handler that called.
    outside(() => this.#pump())
  }

  dropped(lane: FeedLane): void {
    const dropped = this.#schedule.drop(this.#schedule.backlog(lane))
    for (const task of dropped.waiting) this.#tasks.giveBack(task)
    if (dropped.running.length === 0) return
    const reason = new CancelledError(
      `${this.#around.what}: ${placeText({ ...lane.partition, offset: undefined })} is not read from there any more`,
    )
    for (const task of dropped.running) task.context?.abort(reason)
  }

  working(lane: FeedLane): boolean {
    return this.#schedule.backlog(lane).running > 0
  }

  draining(lane: FeedLane): Promise<void> {
    const backlog = this.#schedule.backlog(lane)
    for (const task of this.#schedule.dropWaiting(backlog)) this.#tasks.giveBack(task)
    backlog.poison = undefined
    backlog.passing = undefined
    if (backlog.running === 0) return Promise.resolve()
    return new Promise((resolve) => backlog.cleared.push(resolve))
  }

  ending(timeoutMs: number): Promise<void> {
    const caller = callingAttempt()
    const own = caller?.owner === this ? caller : undefined
    this.#consumerEnds = true
    this.stop()
    if (this.#busy === 0) return Promise.resolve()
    // From here on the shutdown's time counts.
    this.#deadline?.cancel()
    const idle = (): boolean => this.#busy <= (own?.running ? 1 : 0)
    const late = (): Error => {
      const error = unfinished(this.#around.what, this.#schedule.backlogs, timeoutMs)
      this.#step({ type: "deadline" })
      return error
    }
    return this.#waits.until(idle, timeoutMs, late).then(() => {
      // The handler that ends the consumer and waits for it: its message is not handled.
      if (this.#busy > 0) this.#step({ type: "deadline" })
    })
  }

  // ---- the pump -------------------------------------------------------------------------------------------

  #pump(): void {
    if (this.#pumping || this.#feed === undefined) return
    this.#pumping = true
    try {
      while (this.#machine.phase === "running" && this.#busy < this.#settings.concurrency) {
        const task = this.#nextTask()
        if (task === undefined) break
        this.#start(task)
      }
    } finally {
      this.#pumping = false
    }
    if (this.#feed.ended) this.stop()
  }

  #nextTask(): Task | undefined {
    this.#dry = false
    this.#fromLog = !this.#fromLog
    const fresh = this.#fromLog ? this.#take(1) : undefined
    if (fresh !== undefined) return fresh
    return this.#schedule.next() ?? (this.#dry ? undefined : this.#take(Number.POSITIVE_INFINITY))
  }

  /** The next message of the log that may start at once, after `most` of those that have to wait. */
  #take(most: number): Task | undefined {
    const feed = this.#feed as MessageFeed
    for (let taken = 0; taken < most && this.#machine.phase === "running"; taken++) {
      let message: BatchMessage | undefined
      try {
        message = feed.take()
      } catch (error) {
        this.#takeFailed(error)
        if (this.#busy < this.#settings.concurrency) continue
        this.#dry = true
        return undefined
      }
      if (message === undefined) {
        this.#dry = true
        return undefined
      }
      const task = this.#tasks.of(message)
      if (this.#schedule.admit(task, this.#schedule.backlog(feed.lane as FeedLane))) return task
    }
    return undefined
  }

  #start(task: Task): void {
    const message = task.message as BatchMessage
    const context = new AttemptContext(this, message, ++task.attempt)
    task.context = context
    this.#begin(task, "running")
    let answer: unknown
    try {
      answer = task.scope.call(context, this.#handler, message)
      if (isThenable(answer)) {
        // A native promise is taken as it is; any other calls back once, whatever it does.
        Promise.resolve(answer).then(task.succeeded, task.failed)
        return
      }
    } catch (thrown) {
      this.failed(task, thrown)
      return
    }
    this.succeeded(task)
  }

  // ---- how attempts end -----------------------------------------------------------------------------------

  succeeded(task: Task): void {
    const context = task.context as AttemptContext
    context.running = false
    if (task.phase === "running") this.#handled(task)
    else this.#finish(task)
  }

  failed(task: Task, thrown: unknown): void {
    const context = task.context as AttemptContext
    context.running = false
    if (task.phase !== "running") {
      this.#finish(task)
      return
    }
    const { retry } = this.#settings
    const error = handlerFailure(this.#around.what, placeOf(task), {
      attempt: task.attempt,
      attempts: retry.attempts,
      thrown,
    })
    const delayMs = retryDelayMs(retry, task.attempt, thrown)
    if (delayMs === undefined) this.#failures.last(task, { thrown, error })
    else this.#retry(task, { delayMs, error })
  }

  #retry(task: Task, { delayMs, error }: { readonly delayMs: number; readonly error: MillraceError }): void {
    const again = this.#machine.phase === "running" && !backlogOf(task).lane.draining
    const told = this.#failures.reported(error, again ? "retry" : "stop")
    if (!told || !again || task.phase !== "running") {
      // No attempt more: whoever reads from here next gets the message again.
      this.#finish(task)
      return
    }
    const timer = this.#around.clock.setTimer(jittered(delayMs, this.#around.random), () => {
      task.cancelRetry = undefined
      this.#schedule.again(task)
      this.#pump()
    })
    task.phase = "retrying"
    task.cancelRetry = () => timer.cancel()
    backlogOf(task).running--
    this.#left()
  }

  #handled(task: Task): void {
    if (task.phase !== "void") this.#feed?.handled(backlogOf(task).lane, task.offset)
    this.#finish(task)
  }

  /** Nothing more comes of the task, whether or not its message was handled. */
  #finish(task: Task): void {
    const backlog = backlogOf(task)
    backlog.running--
    this.#schedule.leave(task)
    this.#tasks.giveBack(task)
    if (backlog.running === 0 && backlog.cleared.length > 0) tellCleared(backlog)
    if (backlog.poison !== undefined && backlog.oldest === undefined) this.#passPoison(backlog)
    this.#left()
  }

  // ---- what cannot be read --------------------------------------------------------------------------------

  #takeFailed(error: unknown): void {
    const feed = this.#feed as MessageFeed
    const { lane, failed } = feed
    const poison = lane === undefined ? undefined : poisonOf(error, lane)
    if (lane === undefined || poison === undefined) {
      this.#fail(error)
      return
    }
    const backlog = this.#schedule.backlog(lane)
    if (failed === undefined) {
      // The reader has looked again, and met the same.
      if (backlog.passing !== undefined) return
      backlog.poison = poison
      if (backlog.oldest === undefined) this.#passPoison(backlog)
      return
    }
    const task = this.#tasks.of(failed)
    this.#schedule.admit(task, backlog, { free: true })
    this.#begin(task, "ending")
    this.#failures.last(task, { thrown: poison, error: poison })
  }

  /** Everything before the batch that cannot be read is handled: now it is its turn. */
  #passPoison(backlog: LaneBacklog): void {
    const error = backlog.poison as MillraceError
    backlog.poison = undefined
    if (this.#machine.phase !== "running") return
    this.#busy++
    const passing = {}
    backlog.passing = passing
    const left = (): void => {
      if (backlog.passing === passing) backlog.passing = undefined
      this.#left()
    }
    this.#failures.batch(backlog.lane, error, () => backlog.passing === passing).then(left, left)
  }

  // ---- the end --------------------------------------------------------------------------------------------

  #fail(error: unknown): void {
    this.#step({ type: "end", ending: { kind: "failed", error }, busy: this.#busy > 0 })
  }

  #step(event: RunEvent): void {
    const command = this.#machine.step(event)
    if (command === "none") return
    for (const backlog of [...this.#schedule.backlogs]) {
      backlog.poison = undefined
      for (const task of this.#schedule.dropWaiting(backlog)) this.#tasks.giveBack(task)
    }
    if (command === "drain") {
      const { drainTimeoutMs } = this.#settings
      this.#deadline = this.#around.clock.setTimer(drainTimeoutMs, () => {
        const error = unfinished(this.#around.what, this.#schedule.backlogs, drainTimeoutMs)
        this.#machine.step({ type: "end", ending: { kind: "failed", error }, busy: true })
        this.#step({ type: "deadline" })
      })
      return
    }
    this.#deadline?.cancel()
    this.#forgetSignal()
    if (command === "abandon") this.#abandon()
    this.#around.deadLetters?.close()
    this.#settle(this.#machine.ending as RunEnding)
  }

  #abandon(): void {
    const reason = new CancelledError(`${this.#around.what}: the time that running handlers get at the end is over`)
    for (const backlog of [...this.#schedule.backlogs]) {
      for (const task of this.#schedule.drop(backlog).running) task.context?.abort(reason)
    }
  }

  #settle(ending: RunEnding): void {
    if (!this.#consumerEnds) this.#feed?.release()
    if (ending.kind === "failed") this.#result.reject(ending.error)
    else this.#result.resolve()
  }

  // ---- small parts ----------------------------------------------------------------------------------------

  /** A place is free. */
  #left(): void {
    this.#busy--
    if (this.#machine.phase === "running") {
      this.#pump()
      return
    }
    if (this.#busy === 0) this.#step({ type: "idle" })
    this.#waits.check()
  }

  #begin(task: Task, phase: "running" | "ending"): void {
    task.phase = phase
    backlogOf(task).running++
    this.#busy++
  }
}

function backlogOf(task: Task): LaneBacklog {
  return task.backlog as LaneBacklog
}

function tellCleared(backlog: LaneBacklog): void {
  const waiting = backlog.cleared
  backlog.cleared = []
  for (const resolve of waiting) resolve()
}
