/** What programs do about their progress: marks, commits, and moves of their position. */
import { MillraceError } from "@millrace/contract"
import type { Consumer, Message, StartAt } from "@millrace/core"
import type { ConsumerActor } from "./consumer-actor.ts"
import type { LaneView } from "./lane-view.ts"
import type { Held } from "./reading-desk.ts"

type ReadOperation = Parameters<Consumer["resolve"]>[0]

/** A message and its place in the books. */
export interface InHand {
  readonly message: Message
  readonly held: Held
}

/** Says of messages that they are handled, where asking for more does not; and now and then where it does. */
export async function acknowledge(actor: ConsumerActor, consumer: Consumer, inHand: readonly InHand[]): Promise<void> {
  const { chance, program, stage } = actor
  const { semantics } = program.owner
  const last = inHand.at(-1)
  if (semantics === "onRead" || last === undefined) return
  const byMark = semantics === "marks" ? chance.happens(0.7) : chance.happens(0.05)
  if (byMark) {
    for (const { message, held } of inHand) mark(actor, consumer, { message, held })
  } else if (semantics === "marks" || chance.happens(0.1)) {
    stage.desk.committed(program, last.held)
    const committing = (): Promise<void> => consumer.commit(last.message)
    if (chance.happens(0.5)) await stage.calls.attempt(program, "commit", committing)
    else void stage.calls.attempt(program, "commit", committing)
  }
}

function mark(actor: ConsumerActor, consumer: Consumer, { message, held }: InHand): void {
  // It is handled before that is said: what is stored may not wait for the books.
  actor.stage.desk.handled(held)
  try {
    consumer.mark(message)
  } catch (error) {
    const isKnown = error instanceof MillraceError && ["not-assigned", "history-changed", "closed"].includes(error.kind)
    if (!isKnown) actor.stage.desk.violate("typed errors", `mark of program ${actor.program.id}: ${String(error)}`)
  }
}

/** Now and then, between two reads, a program sets its progress or its position. */
export async function actBetween(actor: ConsumerActor, consumer: Consumer): Promise<void> {
  const { chance, program, stage } = actor
  if (stage.isCalm() || program.owner.semantics === "onRead" || !chance.happens(0.06)) return
  const lanes = [...program.lanes.values()].filter(
    (lane) => lane.isOwned && !lane.isLeaving && lane.expected !== undefined,
  )
  if (lanes.length === 0) return
  const lane = chance.of(lanes)
  if (chance.happens(0.6)) await seek(actor, consumer, lane)
  else await storeOffset(actor, consumer, lane)
}

async function seek(actor: ConsumerActor, consumer: Consumer, lane: LaneView): Promise<void> {
  const { chance, program, stage } = actor
  const { partition, topic } = lane.place
  const history = stage.desk.present(lane.place)
  if (history === undefined || lane.lineage !== history.lineage) return
  const end = history.log.records.length
  const value = chance.between(history.log.first, end)
  const to: StartAt = chance.of([{ kind: "offset", value: BigInt(value) } as const, { kind: "first" } as const])
  const target = to.kind === "offset" ? value : history.log.first
  stage.desk.note(program, `seeks ${topic}/${partition} to ${to.kind} ${target}`)
  for (const one of program.lanes.values()) if (one.place.partition === partition) one.isWilful = true
  const failure = await stage.calls.attempt(program, "seek", () => consumer.seek(partition, to))
  if (failure !== undefined) return
  for (const one of program.lanes.values()) {
    if (one.place.partition !== partition) continue
    // What was in hand counts no more. What is passed over nobody has to handle.
    const start = to.kind === "offset" ? value : stage.desk.present(one.place)?.log.first
    one.restart(one === lane && to.kind === "offset" ? target : undefined)
    stage.desk.waived(program, one.place, { from: 0, to: start ?? end })
  }
}

async function storeOffset(actor: ConsumerActor, consumer: Consumer, lane: LaneView): Promise<void> {
  const { chance, program, stage } = actor
  const { partition } = lane.place
  const history = stage.desk.present(lane.place)
  const isAlone = [...program.lanes.values()].every((one) => one === lane || one.place.partition !== partition)
  if (history === undefined || history.log.records.length === 0 || !isAlone) return
  if (lane.lineage !== history.lineage) return
  const offset = chance.below(history.log.records.length)
  stage.desk.note(program, `sets the progress of ${lane.place.topic}/${partition} to ${offset}`)
  lane.isWilful = true
  stage.desk.waived(program, lane.place, { from: 0, to: offset + 1 })
  await stage.calls.attempt(program, "storeOffset", () => consumer.storeOffset(BigInt(offset), partition))
}

/** The store of a read may or may not have happened (`onRead`): the program finds out, or gives the question up and seeks. */
export async function settleOperation(actor: ConsumerActor, consumer: Consumer, error: MillraceError): Promise<void> {
  const { chance, program, stage } = actor
  const operation = error.context.operation as ReadOperation | undefined
  if (operation === undefined) return
  // A number that two topics have names no partition that `seek` could move in.
  if (!stage.isCalm() && program.owner.topics.length === 1 && chance.happens(0.3)) {
    if (!abandon(actor, consumer, operation)) return
    const lane = program.lane(operation)
    const value = operation.through + 1n
    stage.desk.note(program, `abandons ${operation.topic}/${operation.partition}, and goes on at ${value}`)
    lane.isWilful = true
    // What was lost and given again meanwhile is another matter.
    while (!actor.isOver && program.lane(operation) === lane) {
      const failure = await stage.calls.attempt(program, "seek", () =>
        consumer.seek(operation.partition, { kind: "offset", value }),
      )
      if (failure === undefined) {
        const moved = program.lane(operation)
        moved.isWilful = true
        moved.restart(undefined)
      }
      if (failure === undefined || failure.kind === "not-assigned" || failure.kind === "closed") return
      await program.sleep(100)
    }
    return
  }
  while (!actor.isOver) {
    const failure = await stage.calls.attempt(program, "resolve", () => consumer.resolve(operation))
    if (failure === undefined || failure.kind === "invalid" || failure.kind === "closed") return
    await program.sleep(100)
  }
}

/** Under `onOutOfRange: "fail"` the program itself says where to go on. */
export async function comeIntoRange(actor: ConsumerActor, consumer: Consumer, error: MillraceError): Promise<void> {
  const { program, stage } = actor
  if (error.kind !== "offset-out-of-range") return
  const { stream = "", topic = "", partition = 0, first, end } = error.context
  const place = { stream, topic, partition }
  const value = actor.chance.of([first, first, end]) as bigint
  stage.desk.note(program, `goes on at ${value} of ${topic}/${partition}`)
  const lane = program.lane(place)
  lane.isWilful = true
  const failure = await stage.calls.attempt(program, "seek", () => consumer.seek(partition, { kind: "offset", value }))
  if (failure !== undefined) return
  lane.restart(undefined)
  stage.desk.waived(program, place, { from: 0, to: Number(value) })
}

/** False when the partition went meanwhile, and the question with it. */
function abandon(actor: ConsumerActor, consumer: Consumer, operation: ReadOperation): boolean {
  try {
    consumer.abandon(operation)
    return true
  } catch (error) {
    const isKnown = error instanceof MillraceError && (error.kind === "invalid" || error.kind === "closed")
    if (!isKnown) actor.stage.desk.violate("typed errors", `abandon of program ${actor.program.id}: ${String(error)}`)
    return false
  }
}
