import type { Change, WaitCommand } from "./command.ts"
import type { EngineRequest } from "./request.ts"

/** A command that waits. */
export interface Waiting {
  readonly request: EngineRequest
  readonly command: WaitCommand<unknown, unknown>
  /** When it must answer, on the monotonic clock. */
  readonly deadlineMs: number
}

/** The commands that wait for something to change. */
export class Waits {
  readonly #waiting = new Map<number, Waiting>()

  get size(): number {
    return this.#waiting.size
  }

  add(waiting: Waiting): void {
    this.#waiting.set(waiting.request.id, waiting)
  }

  /** Takes one back. Answers whether it was there. */
  remove(id: number): boolean {
    return this.#waiting.delete(id)
  }

  all(): Waiting[] {
    return [...this.#waiting.values()]
  }

  /** Those that such changes can concern. Without `appended` every partition may have changed. */
  concerned(changes: ReadonlySet<Change>, appended?: ReadonlySet<number>): Waiting[] {
    return this.all().filter(({ command, request }) => {
      const { interest } = command
      const wanted = typeof interest === "string" ? [interest] : interest
      const found = wanted.filter((change) => changes.has(change))
      if (found.length !== 1 || found[0] !== "appends" || appended === undefined) return found.length > 0
      return command.concerns?.(request.args, appended) ?? true
    })
  }

  overdue(nowMs: number): Waiting[] {
    return this.all().filter(({ deadlineMs }) => deadlineMs <= nowMs)
  }

  /** Those that want to look again by now, though their wait is not over. */
  due(nowMs: number): Waiting[] {
    return this.all().filter(({ command, request, deadlineMs }) => {
      return deadlineMs > nowMs && (command.dueMs?.(request.args) ?? Number.POSITIVE_INFINITY) <= nowMs
    })
  }

  /** When the first of them must answer or wants to look again; infinite without one. */
  nextDeadlineMs(): number {
    let next = Number.POSITIVE_INFINITY
    for (const { command, request, deadlineMs } of this.#waiting.values())
      next = Math.min(next, deadlineMs, command.dueMs?.(request.args) ?? Number.POSITIVE_INFINITY)
    return next
  }
}
