import {
  ClosedError,
  InvalidError,
  MillraceError,
  type OffsetOwner,
  type OffsetStore,
  type Position,
  TimeoutError,
  type TopicPartition,
} from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import { topicText } from "../client/names.ts"
import { asMillraceError } from "../partition/failure.ts"
import type { Lane } from "../partition/lane.ts"
import type { OffsetCommitter } from "./offset-committer.ts"
import { type ReadGateCommand, type ReadGateEvent, ReadGateMachine } from "./read-gate.machine.ts"
import { ReadOperation } from "./read-operation.ts"

interface ReadGateSettings {
  readonly what: string
  readonly offsets: OffsetStore
  readonly owner: OffsetOwner
  readonly clock: Clock
  /** The wait before a store that failed is tried again, in ms. */
  readonly retryMs: number
  /** For how long failures that may pass are not told, in ms. */
  readonly quietMs: number
}

interface ReadGateHost {
  /** The partition has something to hand out: messages, or an error. */
  offer(lane: Lane): void
  /** The partition's history may be over. */
  doubted(lane: Lane): void
  /** A fault of our own. */
  failed(error: MillraceError): void
}

/** One partition behind the gate. */
interface Gated {
  readonly lane: Lane
  readonly machine: ReadGateMachine
  timer: Timer | undefined
  /** What the reader was told, or is about to be. */
  told: MillraceError | undefined
  /** What is to be resolved or abandoned. */
  operation: ReadOperation | undefined
  /** Calls under way that throw away what was read if they succeed. */
  halts: number
  /** What the gate itself gave to the store last; `undefined`: nothing since the caller stored something else. */
  own: bigint | undefined
}

/**
 * The policy `onRead`: stores what was read before it is handed out, each partition for itself (seed 001, "Automatic commits"). What a partition
 * has read waits inside its lane.
 */
export class ReadGate {
  readonly #settings: ReadGateSettings
  readonly #committer: OffsetCommitter
  readonly #host: ReadGateHost
  readonly #gated = new Map<Lane, Gated>()
  readonly #sleepers = new Set<() => void>()
  #closed = false

  constructor(settings: ReadGateSettings, committer: OffsetCommitter, host: ReadGateHost) {
    this.#settings = settings
    this.#committer = committer
    this.#host = host
  }

  /** From now on nothing of the partition is handed out before its store. */
  add(lane: Lane): void {
    lane.gate()
    const { retryMs, quietMs } = this.#settings
    const machine = new ReadGateMachine({ retryMs, quietMs })
    this.#gated.set(lane, {
      lane,
      machine,
      timer: undefined,
      told: undefined,
      operation: undefined,
      halts: 0,
      own: undefined,
    })
  }

  /** Something was read, or the position moved over what has no record. */
  staged(lane: Lane, next: bigint): void {
    this.#tell(lane, { type: "staged", next })
  }

  /** The partition's error was handed out. @returns whether it was the gate's */
  errorTaken(lane: Lane, error: MillraceError): boolean {
    if (this.#gated.get(lane)?.told !== error) return false
    this.#tell(lane, { type: "errorTaken", atMs: this.#settings.clock.monotonicMs() })
    return true
  }

  /** What was read and not handed out is thrown away. */
  reset(lane: Lane): void {
    this.#tell(lane, { type: "reset" })
    const gated = this.#gated.get(lane)
    if (gated === undefined) return
    gated.operation = undefined
    gated.timer?.cancel()
    gated.timer = undefined
  }

  /** Runs `work`, during which nothing of the partition is stored: what was read is thrown away if it succeeds. */
  async halted(lane: Lane, work: () => Promise<void>): Promise<void> {
    const gated = this.#gated.get(lane)
    if (gated === undefined) return work()
    this.#tell(lane, { type: "halted" })
    gated.halts++
    try {
      await work()
      gated.halts--
    } catch (error) {
      // Unless another call is about to throw it away.
      if (--gated.halts === 0) this.#tell(lane, { type: "resumed" })
      throw error
    }
  }

  /** The caller stores something by itself, which stands until more is read. @returns what to tell `restored` if that fails */
  overruled(lane: Lane): bigint | undefined {
    const gated = this.#gated.get(lane)
    const own = gated?.own
    if (gated !== undefined) gated.own = undefined
    return own
  }

  /** What the caller wanted to store is not. */
  restored(lane: Lane, own: bigint | undefined): void {
    const gated = this.#gated.get(lane)
    if (gated !== undefined) gated.own ??= own
  }

  /** @throws InvalidError while it is not known whether the last store of the partition has happened */
  refuseUncertain(lane: Lane): void {
    const operation = this.#gated.get(lane)?.operation
    if (operation === undefined) return
    throw new InvalidError(
      `${this.#settings.what}: it is not known whether offset ${operation.through} of partition ${operation.partition} was stored: consumer.resolve(operation) or consumer.abandon(operation) comes first`,
      { context: { ...lane.partition, operation } },
    )
  }

  /**
   * Ends the partition's reading: the next reader goes on behind the last message that was handed out, wherever the gate has stored by now.
   * @returns the progress to store, unless it is stored already
   */
  leave(lane: Lane): bigint | undefined {
    const own = this.#gated.get(lane)?.own
    this.remove(lane)
    const target = lane.handedNext ?? lane.ranges.prefix
    return own === undefined || own === target ? undefined : target
  }

  /** Forgets a partition. */
  remove(lane: Lane): void {
    this.#gated.get(lane)?.timer?.cancel()
    this.#gated.delete(lane)
  }

  /** No timer stays behind, and whoever waits for an answer is refused. */
  close(): void {
    this.#closed = true
    for (const lane of [...this.#gated.keys()]) this.remove(lane)
    for (const wake of [...this.#sleepers]) wake()
  }

  /**
   * Finds out whether a store has happened, and goes on accordingly: hands out what it covers, or stores it again first.
   * @returns whether it had happened
   * @throws InvalidError for an operation that is not open here, TimeoutError when nobody answered in time (the operation stays open),
   *   ClosedError, or why the backend will not tell
   */
  async resolve(operation: ReadOperation, timeoutMs: number): Promise<boolean> {
    const { clock, retryMs, what } = this.#settings
    const { lane } = this.#open(operation)
    const deadlineMs = clock.monotonicMs() + timeoutMs
    for (;;) {
      const answer = await this.#ask(lane, deadlineMs)
      if (this.#closed) throw new ClosedError(`${what} was shut down`)
      const gated = this.#open(operation)
      if (!(answer instanceof MillraceError)) {
        const had = answer !== undefined && answer.offset > operation.through
        gated.operation = undefined
        lane.gateError = undefined
        this.#tell(lane, { type: "found", stored: answer?.offset })
        return had
      }
      if (!answer.retryable) throw answer
      const leftMs = deadlineMs - clock.monotonicMs()
      if (leftMs <= 0) throw this.#unanswered(operation, timeoutMs, answer)
      await this.#sleep(Math.min(retryMs, leftMs))
    }
  }

  /** Gives an operation up. Nothing is undone: the partition stands still until `seek`. @throws InvalidError as `resolve` */
  abandon(operation: ReadOperation): void {
    const gated = this.#open(operation)
    gated.operation = undefined
    gated.lane.gateError = undefined
    this.#tell(gated.lane, { type: "abandoned" })
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  #tell(lane: Lane, event: ReadGateEvent): void {
    const gated = this.#gated.get(lane)
    if (gated === undefined) return
    for (const command of gated.machine.handle(event)) this.#execute(gated, command)
  }

  #execute(gated: Gated, command: ReadGateCommand): void {
    const { lane } = gated
    switch (command.type) {
      case "store":
        this.#store(gated, command.next, command.attempt)
        break
      case "pass":
        lane.gateError = undefined
        lane.pass(command.next)
        this.#host.offer(lane)
        break
      case "tell":
        gated.told = this.#told(gated, command.error, command.uncertain)
        lane.gateError = gated.told
        this.#host.offer(lane)
        break
      case "look":
        this.#host.doubted(lane)
        break
      case "wake":
        gated.timer?.cancel()
        gated.timer = this.#settings.clock.setTimer(command.atMs - this.#settings.clock.monotonicMs(), () => {
          gated.timer = undefined
          this.#tell(lane, { type: "due" })
        })
        break
    }
  }

  #store(gated: Gated, next: bigint, attempt: number): void {
    const { lane } = gated
    gated.own = next
    lane.submittedNext = next
    this.#committer
      .commit(lane, next)
      .then(
        () => this.#tell(lane, { type: "stored", attempt }),
        (error) => {
          const atMs = this.#settings.clock.monotonicMs()
          this.#tell(lane, { type: "storeFailed", attempt, error: asMillraceError(error), atMs })
        },
      )
      .catch((error) => this.#host.failed(asMillraceError(error)))
  }

  /** The error that the reader gets: it says what becomes of the partition. */
  #told(gated: Gated, error: MillraceError, uncertain: bigint | undefined): MillraceError {
    if (uncertain === undefined) return error
    const place = gated.lane.partition
    const operation = new ReadOperation(place, uncertain - 1n)
    gated.operation = operation
    return new MillraceError(
      error.kind,
      `${this.#settings.what}: it is not known whether offset ${operation.through} of partition ${place.partition} was stored (${error.message}); what was read up to there is held back until consumer.resolve(operation), or given up with consumer.abandon(operation)`,
      { retryable: false, outcome: "unknown", cause: error, context: { ...place, operation } },
    )
  }

  #open(operation: ReadOperation): Gated {
    for (const gated of this.#gated.values()) if (gated.operation === operation) return gated
    throw new InvalidError(
      `${this.#settings.what} has no such open operation: it was resolved or abandoned already, its partition is gone, or it is another consumer's`,
    )
  }

  /** What is stored for the partition. Gives up at the deadline, and when the consumer ends. */
  async #ask(lane: Lane, deadlineMs: number): Promise<Position | undefined | MillraceError> {
    const { clock, offsets, owner } = this.#settings
    const answer = offsets.load(owner, [lane.partition]).then(
      ([position]) => position,
      (error) => asMillraceError(error),
    )
    const late = this.#wait(deadlineMs - clock.monotonicMs())
    try {
      return await Promise.race([answer, late.over])
    } finally {
      late.cancel()
    }
  }

  #wait(ms: number): { readonly over: Promise<MillraceError>; cancel(): void } {
    const { promise, resolve } = Promise.withResolvers<MillraceError>()
    const end = (): void => resolve(new TimeoutError("the backend has not answered"))
    const timer = this.#settings.clock.setTimer(Math.max(0, ms), end)
    this.#sleepers.add(end)
    const cancel = (): void => {
      timer.cancel()
      this.#sleepers.delete(end)
    }
    return { over: promise, cancel }
  }

  async #sleep(ms: number): Promise<void> {
    const wait = this.#wait(ms)
    try {
      await wait.over
    } finally {
      wait.cancel()
    }
  }

  #unanswered(operation: ReadOperation, timeoutMs: number, cause: MillraceError): TimeoutError {
    return new TimeoutError(
      `${this.#settings.what}: the backend did not say within ${timeoutMs} ms whether offset ${operation.through} of partition ${operation.partition} of topic "${topicText(operation)}" was stored; the operation is still open`,
      { cause, context: { ...placeOf(operation), operation } },
    )
  }
}

/** The bare partition, without what else an object carries. */
function placeOf({ stream, topic, partition }: TopicPartition): TopicPartition {
  return { stream, topic, partition }
}
