import { MillraceError, type TopicPartition } from "@millrace/contract"
import type { Consumer, ConsumerEvents, ConsumerOptions, Message } from "@millrace/core"
import type { Calls } from "../sim-calls.ts"
import { streamName } from "../workload/world.ts"
import { actAside } from "./asides.ts"
import type { LaneView } from "./lane-view.ts"
import { type Program, placeKey } from "./program.ts"
import type { Held, ReadingDesk } from "./reading-desk.ts"
import { modesOf } from "./reading-modes.ts"
import { comeIntoRange, settleOperation } from "./settling.ts"

/** The pause of a program after a call that failed, in ms. */
const restMs = 20

/** What the actors of one simulation share. */
export interface Stage {
  readonly desk: ReadingDesk
  readonly calls: Calls
  /** From here on programs only read, and handle all that they get. */
  readonly isCalm: () => boolean
  /** Nothing goes wrong at any time. */
  readonly isAlwaysCalm: boolean
}

/** A program that reads: it opens its consumer, and gets messages in one way after the other until it is ended. */
export class ConsumerActor {
  readonly program: Program
  readonly stage: Stage
  consumer: Consumer | undefined
  /** The program does something about its position: what comes next is not to be foreseen until that is done. */
  #isOver = false
  #isFirst = true
  #ending: Promise<void> | undefined

  constructor(program: Program, stage: Stage) {
    this.program = program
    this.stage = stage
    stage.desk.enlist(program)
  }

  /** Its consumer has come to its end by itself, or it was ended. */
  get isOver(): boolean {
    return this.#isOver
  }

  /** Runs until the end. It never rejects. */
  async live(): Promise<void> {
    const { program, stage } = this
    try {
      this.consumer = await this.#open()
      this.consumer.on(this.#listener())
      stage.desk.listens(program)
      this.#isFirst = false
      this.#aside(this.consumer)
      while (!this.#isOver) await this.#readOnce(this.consumer)
    } catch (error) {
      if (this.#isOver) return
      stage.desk.violate(
        "programs run",
        `program ${program.id}: ${error instanceof Error ? error.stack : String(error)}`,
      )
    }
  }

  /** Ends it in order, in one of the ways there are. */
  end(how: "shutdown" | "dispose" | "close", timeoutMs: number): Promise<void> {
    this.#ending ??= this.#end(how, timeoutMs)
    return this.#ending
  }

  /** A message is in the program's hands. */
  got(message: Message): Held {
    return this.stage.desk.handedOut(this.program, message)
  }

  /** The next call says that all that came before is handled. */
  ask(): void {
    this.stage.desk.asked(this.program)
  }

  get chance(): Program["chance"] {
    return this.program.chance
  }

  /** Something that takes its time, as handling a message does. */
  async work(): Promise<void> {
    const ms = this.chance.weighted([
      [8, 0],
      [3, this.chance.between(1, 20)],
      [this.stage.isCalm() ? 0 : 1, this.chance.between(20, 3000)],
    ])
    if (ms > 0) await this.program.sleep(ms)
  }

  async #open(): Promise<Consumer> {
    const { owner, client } = this.program
    const options = this.#options()
    const topic = client.stream(streamName).topic(owner.topics[0] as string)
    if (owner.partition !== undefined) return topic.consumer(owner.of.name, owner.partition, options)
    for (;;) {
      try {
        const { sessionTimeoutMs, rebalanceTimeoutMs, handlerTimeoutMs } = owner
        const topics = owner.topics.slice(1).map((name) => ({ stream: streamName, name }))
        const member = { ...options, sessionTimeoutMs, rebalanceTimeoutMs, topics }
        const joining = topic
          .consumerGroup(owner.of.name)
          .consumer(handlerTimeoutMs === undefined ? member : { ...member, handlerTimeoutMs })
        return await this.stage.calls.follow(this.program, "join", joining)
      } catch (error) {
        if (!(error instanceof MillraceError)) throw error
        if (error.kind === "closed") this.#isOver = true
        if (this.#isOver) throw error
        await this.program.sleep(500)
      }
    }
  }

  #options(): ConsumerOptions {
    const { options } = this.program.owner
    const batchLength = this.chance.of([1, 2, 5, 100])
    return { ...options, batchLength, minRecords: Math.min(batchLength, options.minRecords ?? 1) }
  }

  async #readOnce(consumer: Consumer): Promise<void> {
    const { chance, stage, program } = this
    const modes = modesOf(program.owner)
    const read = chance.weighted(modes)
    stage.desk.note(program, `reads by ${read.name}`)
    try {
      await read(this, consumer)
    } catch (error) {
      if (!(error instanceof MillraceError)) throw error
      if (error.kind === "fenced" || error.kind === "closed") {
        if (this.#ending === undefined) stage.desk.note(program, `is out: ${error.message}`)
        this.#isOver = true
        return
      }
      await settleOperation(this, consumer, error)
      await comeIntoRange(this, consumer, error)
      await program.sleep(restMs)
    }
  }

  /** What it does beside reading. */
  #aside(consumer: Consumer): void {
    const { program, stage } = this
    const loop = async (): Promise<void> => {
      while (!this.#isOver) {
        await program.sleep(this.chance.between(1, 4000))
        if (this.#isOver || this.#ending !== undefined) return
        await actAside(this, consumer)
      }
    }
    loop().catch((error: unknown) => stage.desk.violate("programs run", `program ${program.id}: ${String(error)}`))
  }

  async #end(how: "shutdown" | "dispose" | "close", timeoutMs: number): Promise<void> {
    const { program, stage, consumer } = this
    const { desk, calls } = stage
    // Who does not get to run cannot end either.
    await program.sleep(0)
    if (!program.isAlive) return
    desk.note(program, `ends by ${how} within ${timeoutMs} ms`)
    program.endsInHaste = timeoutMs < 60_000 || (how === "dispose" && !stage.isAlwaysCalm)
    this.#isOver = true
    let failure: MillraceError | undefined
    if (consumer !== undefined && how !== "close") {
      // Handlers that are at work say themselves what is handled.
      if (how === "shutdown" && !program.isAbandoned && program.running === undefined) this.ask()
      const ending = async (): Promise<void> =>
        how === "shutdown" ? await consumer.shutdown({ timeoutMs }) : await consumer[Symbol.asyncDispose]()
      failure = await calls.attempt(program, how, ending)
    }
    const closing = await calls.attempt(program, "close", () => program.client.close({ timeoutMs }))
    if (failure === undefined && closing === undefined && program.owner.partition !== undefined) desk.ended(program)
    desk.note(program, "has ended")
    program.isAlive = false
    for (const text of program.left) desk.violate("nothing is left", text)
  }

  #listener(): Partial<ConsumerEvents> {
    const { program, stage } = this
    const { desk } = stage
    const each = (places: readonly TopicPartition[], what: string, change: (lane: LaneView) => void): void => {
      desk.note(program, `${what} ${places.map(({ topic, partition }) => `${topic}/${partition}`).join(" ")}`)
      for (const place of places) change(program.lane(place))
    }
    const gone = (lane: LaneView): void => {
      program.loads.delete(placeKey(lane.place))
      program.lanes.delete(placeKey(lane.place))
    }
    return {
      assigned: (places) => {
        const isLater = !this.#isFirst
        for (const place of places) {
          program.lanes.delete(placeKey(place))
          // What is told of its progress from here on belongs to the new claim.
          if (isLater) program.loads.delete(placeKey(place))
        }
        each(places, "is given", (lane) => {
          lane.isOwned = true
          lane.isGainedLater = isLater
        })
      },
      revoking: ({ partitions }) =>
        each(partitions, "is about to lose", (lane) => {
          lane.isLeaving = true
          lane.leavingSinceMs = program.clock.monotonicMs()
        }),
      revoked: (places) => each(places, "has handed over", gone),
      lost: (places) => each(places, "has lost", gone),
      sourceChanged: (change) =>
        each([change], `is told of a new history from ${change.offset} of`, (lane) => {
          lane.restart(Number(change.offset))
          desk.waived(program, change, { from: 0, to: Number(change.offset) })
          lane.lineage = undefined
          lane.storedNext = 0
          lane.jumps = []
        }),
      skipped: (skip) =>
        each([skip], `is told of a step from ${skip.from} to ${skip.to} in`, (lane) => {
          const jump = { from: Number(skip.from), to: Number(skip.to) }
          lane.jumps.push(jump)
          // What lies before a start that is nobody's progress is nobody's either.
          const isStart = lane.expected === undefined && program.beginsByRule(skip)
          desk.waived(program, skip, isStart ? { from: 0, to: jump.to } : jump)
        }),
      stalled: (stall) => desk.note(program, `is told of a stall: ${stall.topic}/${stall.partition} ${stall.doing}`),
      handlerTimeout: () => {
        desk.note(program, "is told that a message is in hand for too long")
        for (const lane of program.lanes.values()) lane.isCutOff = true
      },
      loopBlocked: ({ delayMs }) => desk.note(program, `is told that its loop stood still for ${delayMs} ms`),
    }
  }
}
