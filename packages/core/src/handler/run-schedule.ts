/**
 * Which message may be handled next: the order within partitions or keys, how far a partition is ahead of its oldest unhandled message,
 * and whose turn it is. Pure: it knows of no handler, no clock and no promise.
 *
 * A message belongs to a turn where order matters: its partition's, or its key's. One message of a turn is under way at a time, from the
 * start of its first attempt to the end of its last. What comes behind it waits in the turn, and once it is the first of its turn, among
 * those that are ready. Who has a free place takes by turns from those and from the log, so that neither waits for the other to run dry.
 */
import { Buffer } from "node:buffer"
import type { MillraceError } from "@millrace/contract"
import type { FeedLane } from "./message-feed.ts"
import type { HandlerOrder } from "./run-options.ts"
import { type Task, TaskQueue } from "./task.ts"

/** What is one at a time: a partition, or a key of one. */
export class Turn {
  key = ""
  current: Task | undefined
  readonly waiting: TaskQueue = new TaskQueue()
}

/** A partition as the runner sees it: what was taken of it and is not handled. */
export interface LaneBacklog {
  readonly lane: FeedLane
  /** Of all that was taken. */
  taken: number
  oldest: Task | undefined
  youngest: Task | undefined
  running: number
  held: boolean
  /** Those with something under way, by key. */
  readonly turns: Map<string, Turn>
  /** Ready, but for the partition being paused. */
  readonly parked: TaskQueue
  /** An error in the place of a batch, which waits for what came before it. */
  poison: MillraceError | undefined
  /** A batch that cannot be read is being dealt with: whoever began that, until its partition goes or moves. */
  passing: object | undefined
  /** Settle hand-overs once nothing of the partition runs. */
  cleared: (() => void)[]
}

/** Partitions that are taken ahead of the log and not any more. */
export interface ScheduleHost {
  hold(lane: FeedLane): void
  free(lane: FeedLane): void
}

/** With one message of a partition at a time, taking more than this ahead gains nothing. */
const aheadInOrder = 32
/** Turns of keys that are kept for the next ones. */
const spareTurns = 1024
/** Up to here a key's text is made without a buffer object. */
const shortKey = 24

export class RunSchedule {
  readonly #order: HandlerOrder
  readonly #ahead: number
  readonly #freeAt: number
  readonly #host: ScheduleHost
  readonly #backlogs = new Map<FeedLane, LaneBacklog>()
  #latest: LaneBacklog | undefined
  readonly #ready = new TaskQueue()
  #parked = 0
  readonly #spareTurns: Turn[] = []

  constructor(order: HandlerOrder, maxAhead: number, host: ScheduleHost) {
    this.#order = order
    this.#ahead = order === "partition" ? Math.min(maxAhead, aheadInOrder) : maxAhead
    this.#freeAt = this.#ahead >> 1
    this.#host = host
  }

  get backlogs(): Iterable<LaneBacklog> {
    return this.#backlogs.values()
  }

  /** The partition's, made at first sight. */
  backlog(lane: FeedLane): LaneBacklog {
    if (this.#latest?.lane === lane) return this.#latest
    let backlog = this.#backlogs.get(lane)
    if (backlog === undefined) {
      backlog = newBacklog(lane)
      this.#backlogs.set(lane, backlog)
    }
    this.#latest = backlog
    return backlog
  }

  /**
   * Takes up a message that comes from the log, behind all that came before.
   * @param free It keeps no order: a record that no handler sees.
   * @returns whether it may start at once; if not it comes from `next` when its turn has come
   */
  admit(task: Task, backlog: LaneBacklog, { free }: { readonly free: boolean } = ordered): boolean {
    const key = this.#order === "key" && !free ? keyOf(task) : ""
    task.backlog = backlog
    task.sequence = backlog.taken++
    task.older = backlog.youngest
    task.younger = undefined
    if (backlog.youngest === undefined) backlog.oldest = task
    else backlog.youngest.younger = task
    backlog.youngest = task
    if (!backlog.held && aheadOf(backlog) >= this.#ahead) {
      backlog.held = true
      this.#host.hold(backlog.lane)
    }
    if (free || this.#order === "none") return true
    const turn = this.#turnOf(backlog, key)
    task.turn = turn
    if (turn.current === undefined) {
      turn.current = task
      return true
    }
    task.phase = "waiting"
    turn.waiting.push(task)
    return false
  }

  /** The next message that waits and may start; those of paused partitions are passed over until `unpark`. */
  next(): Task | undefined {
    for (let task = this.#ready.shift(); task !== undefined; task = this.#ready.shift()) {
      const { lane, parked } = task.backlog as LaneBacklog
      if (!lane.paused && !lane.draining) return task
      parked.push(task)
      this.#parked++
    }
    return undefined
  }

  /** The message may start again, in its own turn: it has waited for its next attempt. */
  again(task: Task): void {
    task.phase = "waiting"
    this.#ready.push(task)
  }

  /** Partitions may have been resumed. */
  unpark(): void {
    if (this.#parked === 0) return
    for (const { lane, parked } of this.#backlogs.values()) {
      if (lane.paused || lane.draining) continue
      for (let task = parked.shift(); task !== undefined; task = parked.shift()) {
        this.#parked--
        this.#ready.push(task)
      }
    }
  }

  /** The message is over, whichever way: the next of its turn is ready. */
  leave(task: Task): void {
    const backlog = task.backlog as LaneBacklog
    if (task.phase !== "void") this.#unlink(backlog, task)
    const { turn } = task
    task.turn = undefined
    if (turn?.current === task) this.#pass(backlog, turn)
    this.#forgetIfGone(backlog)
  }

  /**
   * Nothing of the partition that has not started counts any more.
   * @returns what waited for its turn or its next attempt; it is out of the schedule
   */
  dropWaiting(backlog: LaneBacklog): Task[] {
    const mine = (task: Task): boolean => task.backlog === backlog
    this.#ready.remove(mine)
    this.#parked -= backlog.parked.remove(mine).length
    for (const turn of backlog.turns.values()) turn.waiting.remove(mine)
    const dropped: Task[] = []
    for (let task = backlog.oldest; task !== undefined; task = task.younger) {
      if (task.phase === "waiting" || task.phase === "retrying") dropped.push(task)
    }
    for (const task of dropped) this.leave(task)
    return dropped
  }

  /**
   * Nothing that was taken of the partition counts any more. What runs becomes void; it keeps its turn until it ends.
   * @returns what ran
   */
  drop(backlog: LaneBacklog): { readonly waiting: Task[]; readonly running: Task[] } {
    const waiting = this.dropWaiting(backlog)
    const running: Task[] = []
    for (let task = backlog.oldest; task !== undefined; task = backlog.oldest) {
      this.#unlink(backlog, task)
      task.phase = "void"
      running.push(task)
    }
    backlog.poison = undefined
    backlog.passing = undefined
    this.#forgetIfGone(backlog)
    return { waiting, running }
  }

  #unlink(backlog: LaneBacklog, task: Task): void {
    const { older, younger } = task
    if (older === undefined) backlog.oldest = younger
    else older.younger = younger
    if (younger === undefined) backlog.youngest = older
    else younger.older = older
    task.older = undefined
    task.younger = undefined
    if (backlog.held && aheadOf(backlog) <= this.#freeAt) {
      backlog.held = false
      this.#host.free(backlog.lane)
    }
  }

  #turnOf(backlog: LaneBacklog, key: string): Turn {
    let turn = backlog.turns.get(key)
    if (turn === undefined) {
      turn = this.#spareTurns.pop() ?? new Turn()
      turn.key = key
      backlog.turns.set(key, turn)
    }
    return turn
  }

  #pass(backlog: LaneBacklog, turn: Turn): void {
    const next = turn.waiting.shift()
    turn.current = next
    if (next !== undefined) {
      this.#ready.push(next)
      return
    }
    if (this.#order !== "key") return
    backlog.turns.delete(turn.key)
    if (this.#spareTurns.length < spareTurns) this.#spareTurns.push(turn)
  }

  #forgetIfGone(backlog: LaneBacklog): void {
    if (backlog.lane.live || backlog.oldest !== undefined || backlog.running > 0) return
    this.#backlogs.delete(backlog.lane)
    if (this.#latest === backlog) this.#latest = undefined
  }
}

const ordered = { free: false } as const

function newBacklog(lane: FeedLane): LaneBacklog {
  return {
    lane,
    taken: 0,
    oldest: undefined,
    youngest: undefined,
    running: 0,
    held: false,
    turns: new Map(),
    parked: new TaskQueue(),
    poison: undefined,
    passing: undefined,
    cleared: [],
  }
}

function aheadOf({ taken, oldest }: LaneBacklog): number {
  return oldest === undefined ? 0 : taken - oldest.sequence
}

/**
 * One text a key, injective. Records without a key keep the order among themselves, as if they had one; an empty key is another one. A
 * key that cannot be read is the handler's to meet.
 */
function keyOf(task: Task): string {
  try {
    const key = task.message?.key
    if (key === null || key === undefined) return ""
    return key.length === 0 ? emptyKey : latin1(key)
  } catch {
    return ""
  }
}

/** Not a text that bytes have in Latin-1. */
const emptyKey = "\u0100"

function latin1(bytes: Uint8Array): string {
  if (bytes.length <= shortKey) return String.fromCharCode.apply(null, bytes as unknown as number[])
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1")
}
