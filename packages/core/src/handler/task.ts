import type { AsyncResource } from "node:async_hooks"
import type { BatchMessage } from "../record/message.ts"
import { type AttemptContext, HandlerScope } from "./handler-context.ts"
import type { LaneBacklog, Turn } from "./run-schedule.ts"

/** Who hears how an attempt ended. */
export interface TaskOwner {
  succeeded(task: Task): void
  failed(task: Task, thrown: unknown): void
}

/**
 * `waiting` for its turn or a free place, `running` in the handler, `retrying` until its next attempt, `ending` while its failure is
 * dealt with. `void`: its partition went, so that nothing that it does counts.
 */
export type TaskPhase = "waiting" | "running" | "retrying" | "ending" | "void" | "done"

/** One message on its way through the runner. Used again for another one once it is done. */
export class Task {
  message: BatchMessage | undefined
  offset = 0n
  backlog: LaneBacklog | undefined
  turn: Turn | undefined
  context: AttemptContext | undefined
  attempt = 0
  phase: TaskPhase = "done"
  /** Of its partition, in the order of the log. */
  sequence = 0
  older: Task | undefined
  younger: Task | undefined
  /** In the one queue that it may stand in. */
  behind: Task | undefined
  /** Ends the wait for the next attempt. */
  cancelRetry: (() => void) | undefined
  /** For the promise of a handler: made once, so that a message costs no function. */
  readonly succeeded: () => void
  readonly failed: (thrown: unknown) => void

  /** What its handlers run in. */
  readonly scope: HandlerScope

  constructor(owner: TaskOwner, callers: AsyncResource) {
    this.scope = new HandlerScope(callers)
    this.succeeded = () => owner.succeeded(this)
    this.failed = (thrown) => owner.failed(this, thrown)
  }
}

/** Tasks that are kept for the next messages. */
const spareTasks = 1024

/** Tasks of one run, used again and again. */
export class TaskPool {
  readonly #owner: TaskOwner
  readonly #callers: AsyncResource
  readonly #spare: Task[] = []

  /** @param callers The async context that handlers see. */
  constructor(owner: TaskOwner, callers: AsyncResource) {
    this.#owner = owner
    this.#callers = callers
  }

  of(message: BatchMessage): Task {
    const task = this.#spare.pop() ?? new Task(this.#owner, this.#callers)
    task.message = message
    task.offset = message.position.offset
    task.attempt = 0
    return task
  }

  /** Nobody may hold the task any more. Its wait for another attempt ends. */
  giveBack(task: Task): void {
    task.cancelRetry?.()
    task.cancelRetry = undefined
    task.message = undefined
    task.context = undefined
    task.scope.attempt = undefined
    task.backlog = undefined
    task.phase = "done"
    if (this.#spare.length < spareTasks) this.#spare.push(task)
  }
}

/** Tasks in a row. A task stands in at most one. */
export class TaskQueue {
  #first: Task | undefined
  #last: Task | undefined

  get first(): Task | undefined {
    return this.#first
  }

  push(task: Task): void {
    task.behind = undefined
    if (this.#last === undefined) this.#first = task
    else this.#last.behind = task
    this.#last = task
  }

  shift(): Task | undefined {
    const task = this.#first
    if (task === undefined) return undefined
    this.#first = task.behind
    if (this.#first === undefined) this.#last = undefined
    task.behind = undefined
    return task
  }

  /** Takes out all that are meant, and answers them in order. */
  remove(meant: (task: Task) => boolean): Task[] {
    const removed: Task[] = []
    const kept: Task[] = []
    for (let task = this.shift(); task !== undefined; task = this.shift()) {
      if (meant(task)) removed.push(task)
      else kept.push(task)
    }
    for (const task of kept) this.push(task)
    return removed
  }
}
