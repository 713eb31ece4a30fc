import { MillraceError } from "@millrace/contract"
import type { SimProgram } from "./sim-program.ts"

/** Who is told what becomes of calls. */
interface CallsDesk {
  note(program: SimProgram, text: string): void
  violate(invariant: string, text: string): void
}

/** The calls that programs wait for: each has to settle, and what it fails with has to be a typed error. */
export class Calls {
  readonly #desk: CallsDesk
  readonly #open = new Map<Promise<unknown>, { readonly program: SimProgram; readonly what: string }>()

  constructor(desk: CallsDesk) {
    this.#desk = desk
  }

  /** Those of living programs that have not settled, in words. */
  get open(): string[] {
    return [...this.#open.values()]
      .filter(({ program }) => program.isAlive)
      .map(({ program, what }) => `${what} of p${program.id}`)
  }

  /** Watches a call. The answer settles as it does. @param isExpected Whether a failure that is no typed error is the program's own. */
  follow<V>(
    program: SimProgram,
    what: string,
    promise: Promise<V>,
    isExpected: (error: unknown) => boolean = () => false,
  ): Promise<V> {
    this.#open.set(promise, { program, what })
    promise.then(
      () => this.#open.delete(promise),
      (error: unknown) => {
        this.#open.delete(promise)
        this.#desk.note(program, `${what} failed: ${described(error)}`)
        if (!(error instanceof MillraceError) && !isExpected(error)) {
          this.#desk.violate("typed errors", `${what} of program ${program.id} failed with ${String(error)}`)
        }
      },
    )
    return promise
  }

  /** Watches a call whose failure is nobody's concern. */
  async attempt(program: SimProgram, what: string, call: () => Promise<unknown>): Promise<MillraceError | undefined> {
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
