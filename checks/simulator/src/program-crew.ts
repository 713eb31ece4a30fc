/** The programs of one simulation: who lives, what happens to them, and how all of them come to their end. */
import type { ProgramDesk } from "./program-desk.ts"
import { Calls } from "./sim-calls.ts"
import type { SimProgram } from "./sim-program.ts"
import type { SimulationFrame } from "./simulation-frame.ts"

/** How often the world looks whether somebody has to follow on another one, in ms. */
const lookMs = 5000

/** Within so long a program ends, in ms. */
export const endMs = 600_000

/** What a program does from its first call to its end. */
interface CrewMember<How> {
  readonly program: SimProgram
  /** It does nothing more by itself. */
  readonly isOver: boolean
  /** It never rejects. */
  live(): Promise<void>
  /** Ends it in order. It never rejects. */
  end(how: How, timeoutMs: number): Promise<void>
}

/** How often what happens to the programs of a part. */
interface CrewHabits<How> {
  /** How often one is killed, where it is stalled 3 times and ended twice. */
  readonly kills: number
  /** The ways that one is ended in before its time. */
  readonly early: readonly How[]
  /** The ways that those who are left are ended in. */
  readonly last: readonly How[]
}

/** All programs of a simulation, in the order in which they began. */
export class ProgramCrew<How extends string, A extends CrewMember<How>> {
  readonly members: A[] = []
  /** The calls that they wait for. */
  readonly calls: Calls
  readonly #frame: SimulationFrame
  readonly #habits: CrewHabits<How>

  constructor(frame: SimulationFrame, habits: CrewHabits<How>) {
    this.calls = new Calls(frame)
    this.#frame = frame
    this.#habits = habits
  }

  /** Those at work. */
  get living(): readonly A[] {
    return this.members.filter(({ program, isOver }) => program.isAlive && !isOver)
  }

  /** One of those at work. */
  some(): A | undefined {
    const { living } = this
    return living.length === 0 ? undefined : this.#frame.chance.of(living)
  }

  /** One comes to life. @param text What the trace says of it. */
  begin(actor: A, text: string): void {
    this.members.push(actor)
    this.#frame.note(actor.program, text)
    // It never rejects.
    void actor.live()
  }

  /** Something happens to one: it is killed, does not get to run for a while, or is ended, maybe with too little time for it. */
  befall(actor: A): void {
    const { chance } = this.#frame
    const { program } = actor
    const what = chance.weighted([
      [this.#habits.kills, "kill"],
      [3, "stall"],
      [2, "end"],
    ])
    if (what === "kill") {
      this.#frame.note(program, "is killed")
      program.kill()
    } else if (what === "stall") {
      const ms = chance.of([chance.between(10, 2000), chance.between(2000, 30_000)])
      this.#frame.note(program, `does not get to run for ${ms} ms`)
      program.stall(ms)
    } else {
      // It never rejects.
      void actor.end(chance.of(this.#habits.early), chance.of([0, 100, 5000, endMs]))
    }
  }

  /** Lets them work until all is done, or for `withinMs`. @param replace Begins another one for each that is out; asked again and again, and at least once. */
  async finish(isDone: () => boolean, withinMs: number, replace: () => void): Promise<void> {
    const { clock } = this.#frame
    const untilMs = clock.monotonicMs() + withinMs
    do {
      replace()
      // The clock goes as far as a timer.
      const end = clock.setTimer(lookMs, () => {})
      await clock.runUntil(isDone, lookMs)
      end.cancel()
    } while (!isDone() && !clock.isExhausted && clock.monotonicMs() < untilMs)
  }

  /** Ends all that are left: each has to come to its end, and every call with it. */
  async end(): Promise<void> {
    const { chance, clock, trace, violate } = this.#frame
    trace.note("world", "the end")
    let open = 0
    for (const actor of this.members) {
      if (!actor.program.isAlive) continue
      open++
      const ending = actor.end(chance.of(this.#habits.last), endMs).finally(() => {
        open--
      })
      ending.catch((error: unknown) => violate("programs run", String(error)))
    }
    const isOver = await clock.runUntil(() => open === 0, 2 * endMs)
    const calls = this.calls.open
    const some = calls.slice(0, 5).join(", ")
    if (!isOver) violate("everything ends", `${open} programs have not ended, with ${some} open`)
    if (calls.length > 0) violate("every call settles", `${calls.length} calls are open: ${some}`)
    for (const { program } of this.members) program.kill()
    await clock.runUntil(() => clock.timers === 0, Number.POSITIVE_INFINITY)
  }
}

/** The last of a program that ends by itself: its client closes, and may leave nothing. */
export async function closeProgram(program: SimProgram, stage: ClosingStage, timeoutMs: number): Promise<void> {
  const { calls, desk } = stage
  await calls.attempt(program, "close", () => program.client.close({ timeoutMs }))
  await program.sleep(0)
  if (!program.isAlive) return
  for (const text of program.left) desk.violate("nothing is left", text)
  program.kill()
  desk.note(program, "has ended")
}

/** Where a program ends. */
interface ClosingStage {
  readonly desk: ProgramDesk
  readonly calls: Calls
}
