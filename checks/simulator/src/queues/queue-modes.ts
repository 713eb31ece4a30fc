import { MillraceError, TimeoutError } from "@millrace/contract"
import type { QueueConsumer, QueueMessage } from "@millrace/core"
import type { QueueActor } from "./queue-actor.ts"
import type { HeardDelivery } from "./queue-ledger.ts"

/** How a program takes messages. */
export type QueueMode = "run" | "process" | "processWithin" | "processBatch" | "pull" | "iterate" | "mix"

export const queueModes: readonly QueueMode[] = [
  "run",
  "run",
  "process",
  "processWithin",
  "processBatch",
  "pull",
  "iterate",
  "mix",
]

const mixed = ["process", "processWithin", "processBatch", "pull"] as const

/** One step of a program's loop. Answers what it failed with; what a handler threw is nobody's concern. */
export async function actOnce(actor: QueueActor, consumer: QueueConsumer): Promise<MillraceError | undefined> {
  const { chance, mode } = actor
  const now = mode === "mix" ? chance.of(mixed) : mode
  try {
    if (now === "run") await run(actor, consumer)
    else if (now === "process")
      await follow(
        actor,
        now,
        consumer.process((message) => handle(actor, message)),
      )
    else if (now === "processWithin") {
      const withinMs = chance.of([0, 10, 1000])
      await follow(
        actor,
        now,
        consumer.processWithin(withinMs, (message) => handle(actor, message)),
      )
    } else if (now === "processBatch") await processBatch(actor, consumer)
    else if (now === "pull") await pull(actor, consumer)
    else await iterate(actor, consumer)
    return undefined
  } catch (error) {
    if (error === actor.oddity) return undefined
    if (error instanceof HandlerTrouble) return undefined
    if (error instanceof TimeoutError && now === "processWithin") return undefined
    if (error instanceof MillraceError) return error
    throw error
  }
}

async function run(actor: QueueActor, consumer: QueueConsumer): Promise<void> {
  const { chance, program } = actor
  const concurrency = program.place.options.ackPolicy === "all" ? 1 : chance.of([1, 1, 4, 10])
  let running = 0
  await follow(
    actor,
    "run",
    consumer.run(
      async (message) => {
        running++
        if (running > concurrency) {
          actor.stage.desk.violate("handlers are no more than was told", `${running} of ${concurrency} run`)
        }
        try {
          await handle(actor, message)
        } finally {
          running--
        }
      },
      { concurrency, ...(chance.happens(0.5) ? { backoffMs: chance.of([1, 1000]) } : {}) },
    ),
  )
}

async function processBatch(actor: QueueActor, consumer: QueueConsumer): Promise<void> {
  const size = actor.chance.of([1, 3, 20])
  const results = await follow(
    actor,
    "processBatch",
    consumer.processBatch(size, (message) => handle(actor, message)),
  )
  for (const [index, result] of results.entries()) {
    // Behind it there may be why an ack failed.
    if (result.status === "rejected" && index < results.length - 2) {
      actor.stage.desk.violate("a batch ends at the first failure", `item ${index} of ${results.length} has failed`)
    }
  }
  const last = results.at(-1)
  if (last?.status === "rejected") throw last.reason
}

async function pull(actor: QueueActor, consumer: QueueConsumer): Promise<void> {
  const { chance, program } = actor
  const max = chance.of([1, 5, 50])
  const messages = await follow(actor, "pull", consumer.pull({ max, maxWaitMs: chance.of([0, 100, 5000]) }))
  if (messages.length > max) {
    actor.stage.desk.violate("no more than was asked for", `${messages.length} messages for a pull of ${max}`)
  }
  const held = messages.map((message) => ({ message, delivery: take(actor, message) }))
  // Their waits go on while it is at work on others.
  for (const { delivery } of held) if (delivery !== undefined && held.length > 1) delivery.item.isExcused = true
  if (program.place.options.ackPolicy === "all") {
    await settleAll(actor, held)
    return
  }
  // With nothing to do in between a loop would take no time.
  if (messages.length === 0) await program.sleep(50)
  if (chance.happens(0.4)) {
    await Promise.all(held.map(({ message, delivery }) => settleOne(actor, message, delivery)))
    return
  }
  for (const { message, delivery } of held) await settleOne(actor, message, delivery)
}

async function iterate(actor: QueueActor, consumer: QueueConsumer): Promise<void> {
  const { chance, stage, program } = actor
  let left = chance.between(1, 20)
  const iterator = consumer[Symbol.asyncIterator]()
  try {
    while (left-- > 0 && !actor.isOver) {
      const { value, done } = await follow(actor, "next", iterator.next())
      if (done === true) return
      await settleOne(actor, value, take(actor, value))
    }
  } finally {
    await stage.calls.attempt(program, "return", async () => iterator.return?.())
  }
}

type InHand = { readonly message: QueueMessage; readonly delivery: HeardDelivery | undefined }

/** Under `all` the last of each partition speaks for those before it. */
async function settleAll(actor: QueueActor, held: readonly InHand[]): Promise<void> {
  const { stage, chance, program } = actor
  const last = new Map<number, InHand>()
  for (const one of held) {
    if (!actor.isTame && chance.happens(0.2)) await pause(actor, one)
    if (one.delivery !== undefined) one.delivery.wish = "ack"
    stage.desk.handled(one.delivery, true)
    last.set(one.message.position.partition, one)
  }
  for (const one of last.values()) await ack(actor, one.message, one.delivery)
  if (held.length === 0) await program.sleep(50)
}

/** A program that settles itself: well, late, twice, in another way, or not at all. */
async function settleOne(actor: QueueActor, message: QueueMessage, delivery: HeardDelivery | undefined): Promise<void> {
  const { chance, stage, program } = actor
  const { desk, calls } = stage
  // An ack under `all` speaks for all that came before it.
  const isAll = program.place.options.ackPolicy === "all"
  const how = actor.isTame
    ? "ack"
    : isAll
      ? chance.of(["ack", "ack", "pause"] as const)
      : chance.weighted([
          [10, "ack"],
          [2, "pause"],
          [2, "nak"],
          [1, "terminate"],
          [1, "forget"],
          [1, "progress"],
        ])
  if (how === "pause" || how === "progress") await pause(actor, { message, delivery })
  if (how === "progress") await calls.attempt(program, "inProgress", () => message.inProgress())
  if (how === "forget") {
    desk.handled(delivery, false)
    return
  }
  if (how === "nak" || how === "terminate") {
    if (delivery !== undefined) delivery.wish = how
    desk.handled(delivery, false)
    const call =
      how === "nak"
        ? () => message.nak(chance.happens(0.5) ? { delayMs: chance.between(0, 3000) } : {})
        : () => message.terminate("not wanted")
    await calls.attempt(program, how, call)
    return
  }
  if (delivery !== undefined) delivery.wish = "ack"
  desk.handled(delivery, true)
  await ack(actor, message, delivery)
}

async function ack(actor: QueueActor, message: QueueMessage, delivery: HeardDelivery | undefined): Promise<void> {
  const { chance, stage, program } = actor
  const { desk, calls } = stage
  const confirm = chance.happens(0.4)
  const asked = message.ack({ confirm })
  const again = !actor.isTame && chance.happens(0.2) ? message.ack() : undefined
  const failure = await calls.attempt(program, "ack", async () => {
    const counts = await asked
    desk.acked(program, delivery, { confirm, counts })
    if (again !== undefined && counts && (await again)) {
      desk.violate("the first call decides", `a second ack in program ${program.id} is answered true`)
    }
  })
  if (failure === undefined) return
  await calls.attempt(program, "second ack", async () => again)
  if (failure.retryable && chance.happens(0.5)) {
    await calls.attempt(program, "ack again", async () =>
      desk.acked(program, delivery, { confirm: false, counts: await message.ack() }),
    )
  }
}

function take(actor: QueueActor, message: QueueMessage): HeardDelivery | undefined {
  const { desk } = actor.stage
  const { payload, deliveries } = message
  return desk.given(actor.program, actor.program.place, { payload, deliveries })
}

async function pause(actor: QueueActor, { message, delivery }: InHand): Promise<void> {
  if (delivery !== undefined) delivery.item.isExcused = true
  await actor.program.sleep(actor.chance.below(2 * actor.waitMs(message.deliveries)))
}

/** A handler that fails. */
class HandlerTrouble extends Error {}

/** What a handler does with a message that the consumer settles by how it ends. */
async function handle(actor: QueueActor, message: QueueMessage): Promise<void> {
  const { chance, stage, program } = actor
  const { desk, calls } = stage
  const delivery = take(actor, message)
  const how = stage.isCalm()
    ? "quick"
    : actor.isTame
      ? chance.of(["quick", "quick", "slow"] as const)
      : chance.weighted([
          [10, "quick"],
          [3, "slow"],
          [3, "fail"],
          [1, "odd"],
          [1, "own"],
          [1, "nak"],
        ])
  let isDone = false
  try {
    if (how === "slow" || chance.happens(0.3)) {
      const longestMs = how === "slow" ? 2 * actor.waitMs(message.deliveries) : 5
      if (how === "slow" && !actor.isExtended && delivery !== undefined) delivery.item.isExcused = true
      await program.sleep(chance.below(longestMs))
    }
    if (how === "fail") throw new HandlerTrouble("the handler fails")
    if (how === "odd") throw actor.oddity
    if (how === "nak" && program.place.options.ackPolicy === "explicit") {
      if (delivery !== undefined) delivery.wish = "nak"
      // One that fails decides nothing: the handler has succeeded then.
      const failure = await calls.attempt(program, "nak", () => message.nak())
      isDone = failure !== undefined
      return
    }
    isDone = true
  } finally {
    desk.handled(delivery, isDone)
  }
  if (how !== "own") return
  if (delivery !== undefined) delivery.wish = "ack"
  await calls.attempt(program, "ack in a handler", async () =>
    desk.acked(program, delivery, { confirm: false, counts: await message.ack() }),
  )
}

function follow<V>(actor: QueueActor, what: string, promise: Promise<V>): Promise<V> {
  return actor.stage.calls.follow(actor.program, what, promise, (error) => isHandlers(actor, error))
}

function isHandlers(actor: QueueActor, error: unknown): boolean {
  return error instanceof HandlerTrouble || error === actor.oddity
}
