import { MillraceError } from "@millrace/contract"
import type { Program } from "./program.ts"
import type { ReadingDesk } from "./reading-desk.ts"

/** The calls that programs wait for: each has to settle, and what it fails with has to be a typed error. */
export class Calls {
  readonly #desk: ReadingDesk
  readonly #open = new Map<Promise<unknown>, { readonly program: Program; readonly what: string }>()

  constructor(desk: ReadingDesk) {
    this.#desk = desk
  }

  /** Those of living programs that have not settled, in words. */
  get open(): string[] {
    return [...this.#open.values()]
      .filter(({ program }) => program.isAlive)
      .map(({ program, what }) => `${what} of p${program.id}`)
  }

  /** Watches a call. The answer settles as it does. */
  follow<V>(program: Program, what: string, promise: Promise<V>): Promise<V> {
    this.#open.set(promise, { program, what })
    promise.then(
      () => this.#open.delete(promise),
      (error: unknown) => {
        this.#open.delete(promise)
        this.#desk.note(program, `${what} failed: ${described(error)}`)
        if (!(error instanceof MillraceError)) {
          this.#desk.violate("typed errors", `${what} of program ${program.id} failed with ${String(error)}`)
        }
      },
    )
    return promise
  }

  /** Watches a call whose failure is nobody's concern. */
  async attempt(program: Program, what: string, call: () => Promise<unknown>): Promise<MillraceError | undefined> {
    try {
      await this.follow(program, what, call())
      return undefined
    } catch (error) {
      if (error instanceof MillraceError) return error
      throw error
    }
  }
}

function described(error: unknown): string {
  return error instanceof MillraceError ? `${error.kind}: ${error.message}` : String(error)
}
