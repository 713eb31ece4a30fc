import { MillraceError } from "@millrace/contract"
import { deadLetter, type QueueConsumer } from "@millrace/core"
import type { Chance } from "../chance.ts"
import { closeProgram } from "../program-crew.ts"
import type { Calls } from "../sim-calls.ts"
import { streamName } from "../workload/world.ts"
import type { QueueDesk } from "./queue-desk.ts"
import { actOnce, type QueueMode, queueModes } from "./queue-modes.ts"
import type { QueueProgram } from "./queue-program.ts"

/** What the actors of one simulation share. */
export interface QueueStage {
  readonly desk: QueueDesk
  readonly calls: Calls
  /** All is well by now: handlers are quick and succeed. */
  readonly isCalm: () => boolean
  /** Handlers of this seed are never at fault. */
  readonly areHandlersGood: boolean
}

/** A failure that ends a program, as its code would let it. */
const lasting = ["not-found", "permission", "storage", "closed", "invalid", "handler"]

/** One program that takes from a queue, from its first call to its end. */
export class QueueActor {
  readonly program: QueueProgram
  readonly stage: QueueStage
  readonly mode: QueueMode
  isOver = false
  #consumer: QueueConsumer | undefined
  #ending: Promise<void> | undefined

  constructor(program: QueueProgram, stage: QueueStage) {
    this.program = program
    this.stage = stage
    const { ackPolicy } = program.place.options
    this.mode = this.chance.of(queueModes.filter((mode) => mode !== "mix" || ackPolicy === "explicit"))
  }

  /** What odd handlers throw. */
  readonly oddity: unknown = { what: "no error at all" }

  /** Its handlers, and what it does itself, are quick enough and succeed. */
  get isTame(): boolean {
    return this.stage.isCalm() || this.stage.areHandlersGood
  }

  /** The wait of a message begins anew while a handler has it. */
  get isExtended(): boolean {
    return this.program.place.consumer.autoExtend !== false
  }

  /** The wait of a delivery, in ms. */
  waitMs(deliveries: number): number {
    const { ackWaitMs = 30_000, backoffMs = [] } = this.program.place.options
    return backoffMs[Math.min(deliveries, backoffMs.length) - 1] ?? ackWaitMs
  }

  get chance(): Chance {
    return this.program.chance
  }

  /** Opens a consumer and works until something ends it. It never rejects. */
  async live(): Promise<void> {
    const { program, stage } = this
    try {
      const consumer = await this.#open()
      if (consumer !== undefined) await this.#work(consumer)
    } catch (error) {
      if (program.isAlive) stage.desk.violate("programs run", `program ${program.id}: ${(error as Error).stack}`)
    }
    this.isOver = true
  }

  /** Ends it in one way or the other; the second call awaits the first. It never rejects. */
  end(how: "shutdown" | "dispose" | "close", timeoutMs: number): Promise<void> {
    this.#ending ??= this.#end(how, timeoutMs)
    return this.#ending
  }

  async #end(how: "shutdown" | "dispose" | "close", timeoutMs: number): Promise<void> {
    const { program, stage } = this
    this.isOver = true
    program.endingMs = program.clock.monotonicMs()
    // What it has in hand it cannot settle any more.
    for (const { isInHand, item } of program.heard.values()) if (isInHand) item.isExcused = true
    if (timeoutMs < 60_000 || how === "dispose") program.endsInHaste = true
    stage.desk.note(program, `ends by ${how} within ${timeoutMs} ms`)
    const consumer = this.#consumer
    if (how === "shutdown" && consumer !== undefined) {
      const failure = await stage.calls.attempt(program, "shutdown", () => consumer.shutdown({ timeoutMs }))
      if (failure === undefined) stage.desk.ended(program)
    }
    if (how === "dispose" && consumer !== undefined) {
      await stage.calls.attempt(program, "dispose", () => Promise.resolve(consumer[Symbol.asyncDispose]()))
    }
    await closeProgram(program, stage, timeoutMs)
  }

  async #open(): Promise<QueueConsumer | undefined> {
    const { program, stage, chance } = this
    const { topic, queue, options, consumer: consumerOptions, deadTopic } = program.place
    const stream = program.client.stream(streamName)
    const burial = deadTopic === undefined ? {} : { deadLetter: deadLetter(stream.topic(deadTopic)) }
    while (!this.isOver) {
      try {
        const found = stream.topic(topic).queue(queue, { ...options, ...burial })
        const consumer = await stage.calls.follow(program, "consumer", found.consumer(consumerOptions))
        this.#consumer = consumer
        return consumer
      } catch (error) {
        if (!(error instanceof MillraceError)) throw error
        if (error.kind === "closed") return undefined
        await program.sleep(chance.between(50, 500))
      }
    }
    return undefined
  }

  async #work(consumer: QueueConsumer): Promise<void> {
    const { program, stage, chance } = this
    stage.desk.note(program, `takes by ${this.mode}`)
    while (!this.isOver && program.isAlive) {
      const failure = await actOnce(this, consumer)
      if (failure !== undefined && lasting.includes(failure.kind)) {
        // What is gone may be made again: another program will.
        if (!this.isOver) await this.end("shutdown", 600_000)
        return
      }
      if (failure !== undefined) await program.sleep(chance.between(1, 200))
    }
  }
}
