import { ConnectionError, MillraceError, PermissionError, StorageError } from "@millrace/contract"
import type { ControlRequest, Fate, FaultPlan } from "./backend/fate.ts"
import type { BackendKind } from "./backend/manifests.ts"
import type { Chance } from "./chance.ts"

/** How bad a simulation's days are. */
export interface Weather {
  /** Of a request: that it does not simply succeed, 0 to 1. */
  readonly trouble: number
  /** Of a step of the script: that something happens to the whole backend (an outage, a topic that is replaced …), 0 to 1. */
  readonly events: number
  /** The longest usual wait on the way to the backend and back, each, in ms. */
  readonly slowMs: number
  /** Longer than an attempt may take, so that answers come too late. */
  readonly lateMs: number
  /** Whether requests come as late too. Not where the backend forgets ids after a while: no producer can know of it. */
  readonly lateArrivals: boolean
  /** Whether requests of an ended connection may arrive later. Only where the backend refuses what comes out of turn. */
  readonly straggling: boolean
}

/** Chosen once a seed: a quarter of them are calm, so that what fails there fails for no reason. */
export function weatherOf(chance: Chance, kind: BackendKind, lateMs: number): Weather {
  const trouble = chance.weighted([
    [2, 0],
    [3, 0.05],
    [3, 0.2],
    [1, 0.5],
  ])
  const events =
    trouble === 0
      ? 0
      : chance.weighted([
          [2, 0],
          [3, 0.04],
          [2, 0.12],
        ])
  const straggling = (kind === "sequence" || kind === "sequenceOnly") && chance.happens(0.5)
  const lateArrivals = kind !== "idWindow" && kind !== "idWindowStored"
  return { trouble, events, slowMs: chance.of([0, 2, 20, 200]), lateMs, lateArrivals, straggling }
}

/** The faults of a weather, drawn from a chance. */
export class WeatherPlan implements FaultPlan {
  readonly #chance: Chance
  readonly #weather: Weather
  /** Whether refusals may be lasting. */
  mayLast = true
  /** From here on everything is answered: the end of a simulation, when what waits has to arrive. */
  isOver = false

  constructor(chance: Chance, weather: Weather) {
    this.#chance = chance
    this.#weather = weather
  }

  append(): Fate {
    return this.#fate([
      [4, "lose"],
      [3, "vanish"],
      [4, "refuse"],
      [1, "silence"],
      [1, "hole"],
      [2, "answer"],
    ])
  }

  control(request: ControlRequest): Fate {
    const lost = request === "describe" || request === "read" ? 1 : 2
    return this.#fate([
      [lost, "lose"],
      [1, "vanish"],
      [3, "refuse"],
      [1, "hole"],
      [2, "answer"],
    ])
  }

  straggles(): number | undefined {
    if (!this.#weather.straggling || this.isOver || this.#chance.happens(0.5)) return undefined
    return this.#chance.between(1, 500)
  }

  /** What happens when it does not simply succeed. */
  #fate(troubles: readonly (readonly [number, Fate["kind"]])[]): Fate {
    const chance = this.#chance
    const { trouble, slowMs, lateMs, lateArrivals } = this.#weather
    const arriveMs = chance.below(slowMs + 1)
    const answerMs = chance.below(slowMs + 1)
    if (this.isOver || !chance.happens(trouble)) return { kind: "answer", arriveMs, answerMs }
    const kind = chance.weighted(troubles)
    if (kind === "refuse") return { kind, arriveMs, answerMs, error: this.#refusal() }
    if (kind !== "answer") return { kind, arriveMs, answerMs }
    // Late: on the way to the backend or back.
    return lateArrivals && chance.happens(0.5)
      ? { kind, arriveMs: arriveMs + lateMs, answerMs }
      : { kind, arriveMs, answerMs: answerMs + lateMs }
  }

  #refusal(): MillraceError {
    const chance = this.#chance
    const kind = chance.weighted([
      [4, "throttled"],
      [4, "not-leader"],
      [4, "connection"],
      [2, "disk-full"],
      [this.mayLast ? 1 : 0, "permission"],
      [this.mayLast ? 1 : 0, "storage"],
    ])
    if (kind === "connection") return new ConnectionError("the connection was refused")
    if (kind === "permission") return new PermissionError("writing is not allowed")
    if (kind === "storage") return new StorageError("the disk is broken")
    return new MillraceError(kind as "throttled", `the backend answers ${kind}`)
  }
}
