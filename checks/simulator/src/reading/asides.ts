/** What programs do while they wait for messages: they ask about their progress, and pause partitions. */
import { MillraceError } from "@millrace/contract"
import type { Consumer } from "@millrace/core"
import type { ConsumerActor } from "./consumer-actor.ts"

export async function actAside(actor: ConsumerActor, consumer: Consumer): Promise<void> {
  const { chance, program, stage } = actor
  const act = chance.weighted([
    [2, "lag"],
    [2, "storedOffset"],
    [1, "diagnostics"],
    [stage.isCalm() ? 0 : 3, "pause"],
    [2, "commit"],
  ])
  const lanes = [...program.lanes.values()].filter(({ isOwned, isLeaving }) => isOwned && !isLeaving)
  program.isAsking = act === "lag" || act === "storedOffset"
  if (act === "lag") await stage.calls.attempt(program, "lag", () => consumer.lag())
  else if (act === "commit") await commitAll(actor, consumer)
  else if (lanes.length > 0) {
    const { partition } = chance.of(lanes).place
    if (act === "storedOffset") await stage.calls.attempt(program, act, () => consumer.storedOffset(partition))
    else if (act === "diagnostics") lookAt(consumer, partition)
    else await pauseFor(actor, consumer, partition)
  }
  program.isAsking = false
}

function lookAt(consumer: Consumer, partition: number): void {
  consumer.lastConsumedOffset(partition)
  consumer.lastStoredOffset(partition)
}

/** Everything that was handed out is handled, whatever is in hand. */
async function commitAll(actor: ConsumerActor, consumer: Consumer): Promise<void> {
  const { program, stage } = actor
  if (program.owner.semantics === "onRead" || program.running !== undefined) return
  for (const lane of program.lanes.values()) {
    const last = lane.open.at(-1)
    if (last !== undefined) stage.desk.committedThrough(program, lane, last)
  }
  await stage.calls.attempt(program, "commit of all", () => consumer.commit())
}

async function pauseFor(actor: ConsumerActor, consumer: Consumer, partition: number): Promise<void> {
  const { program, stage, chance } = actor
  const lanes = [...program.lanes.values()].filter(({ place }) => place.partition === partition)
  stage.desk.note(program, `pauses partition ${partition}`)
  try {
    consumer.pause([partition])
    for (const lane of lanes) lane.isPaused = true
    await program.sleep(chance.between(1, 3000))
    stage.desk.note(program, `resumes partition ${partition}`)
    for (const lane of lanes) lane.isPaused = false
    consumer.resume()
  } catch (error) {
    const isKnown = error instanceof MillraceError && (error.kind === "not-assigned" || error.kind === "closed")
    if (!isKnown) stage.desk.violate("typed errors", `pause of program ${program.id}: ${String(error)}`)
  }
}
