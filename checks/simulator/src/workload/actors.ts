import type { Actor } from "./actor.ts"
import { BackgroundActor } from "./background-actor.ts"
import { BatchingActor } from "./batching-actor.ts"
import { ClientActor } from "./client-actor.ts"
import { DirectActor } from "./direct-actor.ts"
import type { World } from "./world.ts"

/** Those who send in a simulation: one to three, of the kinds that the seed says. @param straggling Whether all need identities. */
export function actorsOf(world: World, straggling: boolean): Actor[] {
  const { chance, topics } = world
  const actors: Actor[] = []
  const count = chance.between(1, 3)
  for (let i = 0; i < count; i++) {
    const kind = chance.weighted([
      [3, "direct"],
      [1, "client"],
      [4, "background"],
      [1, "batching"],
    ])
    if (kind === "client") actors.push(new ClientActor(world))
    else if (kind === "batching") actors.push(new BatchingActor(world, chance.of(topics)))
    else if (kind === "background") actors.push(new BackgroundActor(world, chance.of(topics)))
    else actors.push(new DirectActor(world, chance.of(topics), !straggling))
  }
  return actors
}
