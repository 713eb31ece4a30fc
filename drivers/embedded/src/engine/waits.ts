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
      if (!changes.has(command.interest)) return false
      if (command.interest !== "appends" || appended === undefined) return true
      return command.concerns?.(request.args, appended) ?? true
    })
  }

  overdue(nowMs: number): Waiting[] {
    return this.all().filter(({ deadlineMs }) => deadlineMs <= nowMs)
  }

  /** The earliest deadline; infinite without one. */
  nextDeadlineMs(): number {
    let next = Number.POSITIVE_INFINITY
    for (const { deadlineMs } of this.#waiting.values()) next = Math.min(next, deadlineMs)
    return next
  }
}
