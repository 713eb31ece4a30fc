import type { Weather } from "../weather.ts"
import type { Actor } from "./actor.ts"
import type { BackendEvents } from "./backend-events.ts"
import type { World } from "./world.ts"

/** How long a program waits for its calls at most before it goes on, in ms. */
const longestWaitMs = 600_000

/** Who acts in a script. */
export interface Cast {
  readonly actors: readonly Actor[]
  readonly events: BackendEvents
  readonly weather: Weather
}

/** A program that sends, at once or with pauses, waiting for its sends or not, while things happen to the backend. */
export async function runScript(world: World, { actors, events, weather }: Cast): Promise<void> {
  const { chance, clock } = world
  const steps = chance.between(4, 28)
  const awaits = chance.of([0, 0.1, 0.6])
  for (let step = 0; step < steps; step++) {
    chance.of(actors).step()
    if (chance.happens(weather.events)) events.happen()
    if (chance.happens(awaits)) {
      const { calls } = world.history
      await clock.runUntil(() => calls.every(({ state }) => state !== "open"), longestWaitMs)
      continue
    }
    const pauseMs = chance.weighted([
      [5, -1],
      [2, 0],
      [3, chance.between(1, 20)],
      [1, chance.between(20, 3000)],
    ])
    if (pauseMs >= 0) await clock.advance(pauseMs)
  }
}
