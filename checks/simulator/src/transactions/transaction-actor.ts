import { MillraceError } from "@millrace/contract"
import type { Chance } from "../chance.ts"
import { closeProgram } from "../program-crew.ts"
import type { Calls } from "../sim-calls.ts"
import type { SimProgram } from "../sim-program.ts"
import type { TransactionDesk } from "./transaction-desk.ts"

/** What the actors of one simulation share. */
export interface TransactionStage {
  readonly desk: TransactionDesk
  readonly calls: Calls
  /** All is well by now: programs commit, in time. */
  readonly isTame: () => boolean
  /** Topics that programs write to. */
  readonly outputs: readonly string[]
  /** A number that no record has. */
  readonly freshNumber: () => number
}

/** One program that works in transactions, from its first call to its end. */
export abstract class TransactionActor {
  readonly program: SimProgram
  readonly stage: TransactionStage
  readonly transactionalId: string
  isOver = false
  #ending: Promise<void> | undefined
  readonly #endings: (() => Promise<unknown>)[] = []

  constructor(program: SimProgram, stage: TransactionStage, transactionalId: string) {
    this.program = program
    this.stage = stage
    this.transactionalId = transactionalId
  }

  get chance(): Chance {
    return this.program.chance
  }

  /** What it does until something ends it. */
  protected abstract work(): Promise<void>

  /** What `end` shuts down, in this order. */
  protected onEnd(ending: () => Promise<unknown>): void {
    this.#endings.push(ending)
  }

  /** It never rejects. */
  async live(): Promise<void> {
    const { program, stage } = this
    try {
      await this.work()
    } catch (error) {
      const isKnown = error instanceof MillraceError
      if (program.isAlive && !isKnown) {
        stage.desk.violate("programs run", `program ${program.id}: ${(error as Error).stack ?? String(error)}`)
      }
      stage.desk.note(program, `is over: ${String(error)}`)
      // What it has joined and begun is for others.
      if (program.isAlive && !this.isOver) await this.end("shutdown", 600_000)
    }
    this.isOver = true
  }

  /** Ends it in one way or the other; the second call awaits the first. It never rejects. */
  end(how: "shutdown" | "close", timeoutMs: number): Promise<void> {
    this.#ending ??= this.#end(how, timeoutMs)
    return this.#ending
  }

  async #end(how: "shutdown" | "close", timeoutMs: number): Promise<void> {
    const { program, stage } = this
    this.isOver = true
    stage.desk.note(program, `ends by ${how} within ${timeoutMs} ms`)
    if (how === "shutdown") for (const ending of this.#endings) await stage.calls.attempt(program, "shutdown", ending)
    await closeProgram(program, stage, timeoutMs)
  }
}
