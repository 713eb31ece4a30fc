import { PermissionError } from "@millrace/contract"
import type { ControlRequest, Fate, FaultPlan, ReadOddity } from "../backend/fate.ts"
import type { Chance } from "../chance.ts"
import { ReadingPlan, type ReadingWeather } from "../reading/reading-plan.ts"

/** What tells of a transaction that is open. */
const steps: ReadonlySet<ControlRequest> = new Set(["enlist", "prepare", "commit", "abort", "complete"])

/**
 * The faults of those who read, and two more: what went unanswered is refused for good when it is asked again, though it may have happened
 * the first time; and what a consumer stores by itself is often slow, so that transactions overtake it.
 */
export class TransactionPlan implements FaultPlan {
  readonly #others: ReadingPlan
  readonly #chance: Chance
  readonly #isCalm: boolean
  readonly #unanswered = new Set<ControlRequest>()

  constructor(chance: Chance, weather: ReadingWeather) {
    this.#others = new ReadingPlan(chance, weather)
    this.#chance = chance
    this.#isCalm = weather.trouble === 0
  }

  get isOver(): boolean {
    return this.#others.isOver
  }

  set isOver(isOver: boolean) {
    this.#others.isOver = isOver
  }

  append(): Fate {
    return this.#others.append()
  }

  control(request: ControlRequest): Fate {
    const fate = this.#others.control(request)
    if (this.isOver || this.#isCalm) return fate
    if (request === "offsets" && this.#chance.happens(0.2)) {
      return { ...fate, arriveMs: fate.arriveMs + this.#chance.below(3000) }
    }
    if (!steps.has(request)) return fate
    if (fate.kind === "lose" || fate.kind === "vanish") this.#unanswered.add(request)
    else if (this.#unanswered.delete(request) && this.#chance.happens(0.3)) {
      return { ...fate, kind: "refuse", error: new PermissionError("that is not allowed any more") }
    }
    return fate
  }

  oddity(): ReadOddity {
    return this.#others.oddity()
  }

  straggles(): number | undefined {
    return this.#others.straggles()
  }
}
