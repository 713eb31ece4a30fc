import { CancelledError, type MillraceError } from "@millrace/contract"
import type { Consumer, Message } from "@millrace/core"
import type { ConsumerActor } from "./consumer-actor.ts"
import type { Held } from "./reading-desk.ts"

/** What a handler of the simulation does with an attempt. */
type Deed = "handle" | "fail" | "failOddly" | "stop" | "shutdown"

type Order = "partition" | "key" | "none"

/** `consumer.run`, with handlers that are slow, fail, or end the run; watches that their order and their number are as it was told. */
export async function runHandlers(actor: ConsumerActor, consumer: Consumer): Promise<void> {
  const { chance, program, stage } = actor
  const { desk, calls } = stage
  const order = chance.of<Order>(["partition", "key", "none"])
  const concurrency = chance.of([1, 2, 8])
  const attempts = chance.of([1, 3])
  const onFailure = stage.isCalm() ? "skip" : chance.of(["skip", "stop"] as const)
  const trouble = stage.isCalm() ? 0 : chance.of([0, 0.1])
  const watch = new HandlerWatch(actor, order, concurrency)
  const controller = new AbortController()
  const timer = program.ownClock.setTimer(chance.between(50, 6000), () => controller.abort())
  const handler = async (message: Message, context: { readonly attempt: number; stop(): void }): Promise<void> => {
    const held = watch.begin(message, context.attempt)
    const ms = chance.weighted([
      [4, 0],
      [3, chance.between(1, 30)],
      [1, chance.between(30, 2000)],
    ])
    if (ms > 0) await program.sleep(ms)
    watch.end(message)
    const deed = chance.happens(trouble) ? chance.of<Deed>(["fail", "fail", "failOddly", "stop", "shutdown"]) : "handle"
    if (deed === "stop") context.stop()
    // It never rejects, and does not wait for this handler.
    if (deed === "shutdown") void actor.end("shutdown", 600_000)
    const fails = deed === "fail" || deed === "failOddly"
    // Under "skip" a message is handled by its last failure.
    if (!fails || (onFailure === "skip" && context.attempt === attempts)) desk.handled(held)
    if (deed === "fail") throw new Error(`attempt ${context.attempt} failed`)
    // What is thrown need not be an error.
    if (deed === "failOddly") throw undefined
  }
  desk.note(program, `runs ${concurrency} handlers in order of ${order}, ${attempts} attempts, then ${onFailure}`)
  actor.ask()
  // What was in hand before and is not marked comes again.
  for (const lane of program.lanes.values())
    if (lane.open.length > 0) lane.restart(lane.isWilful ? undefined : lane.handledNext)
  program.running = order
  try {
    const retry = { attempts, backoffMs: chance.of([1, 100]) }
    const { signal } = controller
    const onError = (error: MillraceError, next: string): void => {
      if (next === "skip" && error.kind === "corruption") watch.passed(error)
    }
    const options = { concurrency, order, retry, onFailure, onError, signal }
    await calls.follow(program, "run", consumer.run(handler, options))
  } catch (error) {
    if (!(error instanceof CancelledError)) throw error
  } finally {
    timer.cancel()
    program.running = undefined
    watch.close()
  }
}

/** Who is at work, and on what. */
class HandlerWatch {
  readonly #actor: ConsumerActor
  readonly #order: Order
  readonly #concurrency: number
  /** How many of each key or partition are at work, and which record of it came last. */
  readonly #lines = new Map<string, { running: number; last: number }>()
  readonly #held = new Map<string, Held>()
  #running = 0

  constructor(actor: ConsumerActor, order: Order, concurrency: number) {
    this.#actor = actor
    this.#order = order
    this.#concurrency = concurrency
  }

  begin(message: Message, attempt: number): Held {
    const { desk } = this.#actor.stage
    const { id } = this.#actor.program
    const name = nameOf(message)
    const known = this.#held.get(name)
    const held = attempt > 1 && known !== undefined ? known : this.#actor.got(message)
    this.#held.set(name, held)
    if (++this.#running > this.#concurrency) {
      desk.violate(
        "handlers keep their number",
        `program ${id} runs ${this.#running} handlers, not ${this.#concurrency}`,
      )
    }
    const line = this.#lineOf(message)
    const isBehind = held.offset < line.last || (held.offset === line.last && attempt === 1)
    if (this.#order !== "none" && (line.running > 0 || isBehind)) {
      const how = isBehind ? `behind ${line.last}` : "beside another one"
      desk.violate("handlers keep their order", `program ${id} handles ${name} ${how}, in order of ${this.#order}`)
    }
    line.running++
    line.last = held.offset
    return held
  }

  end(message: Message): void {
    this.#running--
    this.#lineOf(message).running--
  }

  /** A record that cannot be read is passed over. */
  passed({ context }: MillraceError): void {
    const { program, stage } = this.#actor
    const { stream = "", topic = "", partition = 0, offset = 0n } = context
    const place = { stream, topic, partition }
    const step = { from: Number(offset), to: Number(context.nextOffset as bigint) }
    stage.desk.note(program, `passes ${topic}/${partition} from ${step.from} to ${step.to}`)
    program.lane(place).jumps.push(step)
    // What lies before a start that is nobody's progress is nobody's either.
    const isStart = program.lane(place).expected === undefined && program.beginsByRule(place)
    stage.desk.waived(program, place, isStart ? { from: 0, to: step.to } : step)
  }

  /** What was not handled comes again. */
  close(): void {
    for (const lane of this.#actor.program.lanes.values()) {
      // Behind what was taken a hole may have come since, of records that are read ahead.
      if (lane.expected !== undefined)
        lane.restart(lane.isWilful ? undefined : Math.min(lane.expected, lane.handledNext))
    }
  }

  #lineOf(message: Message): { running: number; last: number } {
    const { partition } = message.position
    const { lineage, claim } = message.checkpoint()
    const place = `${message.topic}/${partition} ${lineage} ${String(claim?.token)}`
    const key = this.#order === "key" ? `${place} ${message.key?.[0] ?? "-"}` : place
    let line = this.#lines.get(key)
    if (line === undefined) {
      line = { running: 0, last: -1 }
      this.#lines.set(key, line)
    }
    return line
  }
}

function nameOf({ topic, position }: Message): string {
  return `${topic}/${position.partition}@${position.offset}`
}
