/** The ways in which a program gets its messages. Each reads for a while and comes back. */
import type { Consumer } from "@millrace/core"
import type { ConsumerActor } from "./consumer-actor.ts"
import type { Owner } from "./owner.ts"
import { runHandlers } from "./run-mode.ts"
import { acknowledge, actBetween } from "./settling.ts"

/** Reads for a while. Rejects with what a read failed with. */
export type Mode = (actor: ConsumerActor, consumer: Consumer) => Promise<void>

/** With their weights. Handlers say themselves what is handled, so that they are not for every policy. */
export function modesOf({ semantics }: Owner): readonly (readonly [number, Mode])[] {
  const byHandler = semantics === "asking" || semantics === "marks"
  return [
    [3, oneByOne],
    [2, withinTime],
    [3, loop],
    [2, streamed],
    [2, inBatches],
    [1, rented],
    [byHandler ? 2 : 0, runHandlers],
  ]
}

const oneByOne: Mode = async (actor, consumer) => {
  for (let left = actor.chance.between(1, 20); left > 0 && !actor.isOver; left--) {
    actor.ask()
    const { done, value } = await actor.stage.calls.follow(actor.program, "next", consumer.next())
    if (done) return await actor.program.sleep(1)
    const held = actor.got(value)
    await actor.work()
    await acknowledge(actor, consumer, [{ message: value, held }])
    await actBetween(actor, consumer)
  }
}

const withinTime: Mode = async (actor, consumer) => {
  const timeoutMs = actor.chance.of([0, 1, 50, 3000])
  for (let left = actor.chance.between(1, 12); left > 0 && !actor.isOver; left--) {
    actor.ask()
    const message = await actor.stage.calls.follow(actor.program, "nextWithin", consumer.nextWithin(timeoutMs))
    const held = actor.got(message)
    await actor.work()
    await acknowledge(actor, consumer, [{ message, held }])
    await actBetween(actor, consumer)
  }
}

const loop: Mode = async (actor, consumer) => {
  let left = actor.chance.between(1, 30)
  actor.ask()
  for await (const message of consumer) {
    const held = actor.got(message)
    await actor.work()
    if (!actor.stage.isCalm() && actor.chance.happens(0.03)) {
      actor.program.isAbandoned = true
      break
    }
    await acknowledge(actor, consumer, [{ message, held }])
    await actBetween(actor, consumer)
    if (actor.isOver || --left <= 0) {
      actor.program.isAbandoned = true
      break
    }
    actor.ask()
  }
  if (left > 0) await actor.program.sleep(1)
}

const streamed: Mode = async (actor, consumer) => {
  const controller = new AbortController()
  const timer = actor.program.ownClock.setTimer(actor.chance.between(1, 5000), () => controller.abort())
  try {
    actor.ask()
    for await (const message of consumer.stream({ signal: controller.signal })) {
      const held = actor.got(message)
      await actor.work()
      await acknowledge(actor, consumer, [{ message, held }])
      if (actor.isOver) {
        actor.program.isAbandoned = true
        return
      }
      actor.ask()
    }
    await actor.program.sleep(1)
  } finally {
    timer.cancel()
  }
}

const inBatches: Mode = async (actor, consumer) => {
  let left = actor.chance.between(1, 6)
  actor.ask()
  for await (const batch of consumer.batches()) {
    const held = [...batch].map((message) => ({ message, held: actor.got(message) }))
    await actor.work()
    await acknowledge(actor, consumer, held)
    if (actor.isOver || --left <= 0) {
      actor.program.isAbandoned = true
      break
    }
    actor.ask()
  }
  if (left > 0) await actor.program.sleep(1)
}

const rented: Mode = async (actor, consumer) => {
  actor.ask()
  const batch = await actor.stage.calls.follow(actor.program, "receiveRented", consumer.receiveRented())
  try {
    const held = [...batch].map((message) => ({ message, held: actor.got(message) }))
    await actor.work()
    await acknowledge(actor, consumer, held)
  } finally {
    batch[Symbol.dispose]()
  }
}
