import { ConnectionError, MillraceError, PermissionError, StorageError, TimeoutError } from "@millrace/contract"
import type { ControlRequest, Fate, FaultPlan, ReadOddity } from "../backend/fate.ts"
import type { Chance } from "../chance.ts"

/** How bad the days of those who read are. */
export interface ReadingWeather {
  /** Of a request: that it does not simply succeed, 0 to 1. */
  readonly trouble: number
  /** Of a poll that succeeds: that its answer is odd, 0 to 1. */
  readonly oddity: number
  /** Of a step of the script: that something happens to the backend, 0 to 1. */
  readonly events: number
  /** Of a step of the script: that something happens to a program: it is killed, stalls, ends, 0 to 1. */
  readonly accidents: number
  /** The longest usual wait on the way to the backend and back, each, in ms. */
  readonly slowMs: number
}

/** After so long a driver gives up on an answer, in ms. */
const silenceMs = 30_000

/** Chosen once a seed: a quarter of them are calm. */
export function readingWeatherOf(chance: Chance): ReadingWeather {
  const trouble = chance.weighted([
    [2, 0],
    [3, 0.03],
    [2, 0.15],
    [1, 0.4],
  ])
  const isCalm = trouble === 0
  return {
    trouble,
    oddity: isCalm ? 0 : chance.of([0, 0.2, 0.6]),
    events: isCalm ? 0 : chance.of([0, 0.05, 0.2]),
    accidents: isCalm ? 0 : chance.of([0, 0.05, 0.2]),
    slowMs: chance.of([0, 1, 10, 100]),
  }
}

/** The faults of a reading weather. Nothing stays unanswered for ever: a driver that hears nothing gives the request up. */
export class ReadingPlan implements FaultPlan {
  readonly #chance: Chance
  readonly #weather: ReadingWeather
  /** From here on everything is answered. */
  isOver = false

  constructor(chance: Chance, weather: ReadingWeather) {
    this.#chance = chance
    this.#weather = weather
  }

  append(): Fate {
    return this.control("change")
  }

  control(request: ControlRequest): Fate {
    const chance = this.#chance
    const { trouble, slowMs } = this.#weather
    const arriveMs = chance.below(slowMs + 1)
    const answerMs = chance.below(slowMs + 1)
    if (this.isOver || !chance.happens(trouble)) return { kind: "answer", arriveMs, answerMs }
    const kind = chance.weighted<Fate["kind"]>([
      [3, "lose"],
      [2, "vanish"],
      [4, "refuse"],
      [1, "silence"],
      [1, "hole"],
      [3, "answer"],
    ])
    const error = new TimeoutError("the backend did not answer")
    if (kind === "silence") return { kind: "lose", arriveMs, answerMs: silenceMs, error }
    if (kind === "hole") return { kind: "vanish", arriveMs, answerMs: silenceMs, error }
    if (kind === "refuse") return { kind, arriveMs, answerMs, error: this.#refusal(request) }
    if (kind !== "answer") return { kind, arriveMs, answerMs }
    return chance.happens(0.5)
      ? { kind, arriveMs: arriveMs + chance.below(3000), answerMs }
      : { kind, arriveMs, answerMs: answerMs + chance.below(3000) }
  }

  oddity(): ReadOddity {
    const chance = this.#chance
    if (this.isOver || !chance.happens(this.#weather.oddity)) return "none"
    return chance.of(["early", "partial", "stale", "stale"])
  }

  straggles(): number | undefined {
    return undefined
  }

  #refusal(request: ControlRequest): MillraceError {
    const kind = this.#chance.weighted([
      [4, "throttled"],
      [4, "not-leader"],
      [4, "connection"],
      [request === "group" ? 0 : 1, "permission"],
      [request === "group" ? 0 : 1, "storage"],
    ])
    if (kind === "connection") return new ConnectionError("the connection was refused")
    if (kind === "permission") return new PermissionError("that is not allowed")
    if (kind === "storage") return new StorageError("the disk is broken")
    return new MillraceError(kind as "throttled", `the backend answers ${kind}`)
  }
}
