/** The writes that wait for a commit, and for the lock that other processes may hold. */
import { type Durability, errorToWire, type MillraceError, NotFoundError, type TopicName } from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { Checkpoints } from "./checkpoint.ts"
import type { TopicRow, WriteCommand } from "./command.ts"
import { type LockTurns, letGoMs } from "./lock-turns.ts"
import { lockTimeout, sleep } from "./lock-wait.ts"
import type { Answer, EngineRequest } from "./request.ts"
import { Retention } from "./retention.ts"
import { storageError } from "./storage-error.ts"
import type { EngineParts, Transaction } from "./transaction.ts"
import { type QueuedWrite, runGroup } from "./write-group.ts"

/**
 * What shares one commit at most. Not more bytes than are synced within some milliseconds, so that the callers of one commit encode
 * what comes next while another commit is written.
 */
const mostWritesPerCommit = 256
const mostBytesPerCommit = 2 << 20

/** The lock is tried so often, about 10 ms, before the thread does other things and it is tried again. */
const triesPerSlice = 40

/** The pause between two slices. */
const retryMs = 1

/** What the queue works with. */
export interface WriteQueueOptions {
  readonly turns: LockTurns
  readonly checkpoints: Checkpoints
  /** How long a write waits for the lock before it fails as rejected. */
  readonly lockBoundMs: number
  readonly answer: Answer
  /** Called after each commit that was answered. */
  readonly committed: (transaction: Transaction) => void
}

interface Group {
  readonly writes: QueuedWrite[]
  readonly durability: Durability
}

/** Writes in the order in which they came, within each durability. */
export class WriteQueue {
  readonly #parts: EngineParts
  readonly #options: WriteQueueOptions
  readonly #retention = new Retention()
  readonly #lookup: (name: TopicName) => TopicRow | undefined
  #writes: QueuedWrite[] = []
  #sweeping = false
  #retry: Timer | undefined
  #closed = false

  constructor(parts: EngineParts, options: WriteQueueOptions) {
    this.#parts = parts
    this.#options = options
    this.#lookup = (name) => lookUp(parts, name)
  }

  get isEmpty(): boolean {
    return this.#writes.length === 0
  }

  add(request: EngineRequest, command: WriteCommand): void {
    try {
      this.#writes.push({
        request,
        command,
        durability: command.durability(request.args, this.#lookup),
        sinceMs: this.#parts.clock.monotonicMs(),
        bytes: command.incoming?.(request.args).bytes ?? 0,
      })
    } catch (error) {
      this.#refuse([request], error)
    }
  }

  /** Commits what is queued, as far as the lock can be had now; goes on by itself with what is left. */
  pump(): void {
    while (this.#writes.length > 0 && !this.#closed) {
      const group = this.#nextGroup()
      try {
        if (!this.#lock(group.durability)) {
          this.#giveUp()
          if (this.#writes.length > 0) this.#retry ??= this.#parts.clock.setTimer(retryMs, () => this.#pumpAgain())
          return
        }
      } catch (error) {
        // A disk that is full or fails: the group is refused, and the next one tries again.
        this.#refuse(this.#dequeue(group.writes), error)
        continue
      }
      this.#commit(group)
      if (this.#options.turns.othersWait(this.#parts.clock.monotonicMs())) sleep(letGoMs)
    }
  }

  /** Fails what is queued. */
  close(error: MillraceError): void {
    this.#closed = true
    this.#retry?.cancel()
    this.#refuse(this.#dequeue(this.#writes), error)
  }

  #pumpAgain(): void {
    this.#retry = undefined
    this.pump()
  }

  /** The writes of one durability that came first, in order. What need not be synced goes first, since it is quick. */
  #nextGroup(): Group {
    const durability: Durability = this.#writes.some((write) => write.durability === "written") ? "written" : "synced"
    const writes: QueuedWrite[] = []
    let bytes = 0
    for (const write of this.#writes) {
      if (write.durability !== durability) continue
      if (writes.length > 0 && (writes.length >= mostWritesPerCommit || bytes + write.bytes > mostBytesPerCommit)) break
      writes.push(write)
      bytes += write.bytes
    }
    return { writes, durability }
  }

  /** Begins the write transaction, waiting for one slice of time at most. */
  #lock(durability: Durability): boolean {
    const { store, clock } = this.#parts
    store.setDurability(durability)
    const since = this.#writes[0]?.sinceMs ?? 0
    for (let tries = 0; tries < triesPerSlice; tries++) {
      if (store.tryBegin()) return true
      this.#options.turns.waiting(clock.monotonicMs() - since)
      store.locks.pause()
    }
    return false
  }

  #commit({ writes, durability }: Group): void {
    this.#dequeue(writes)
    const { replies, transfer, transaction } = runGroup(this.#parts, writes, {
      synced: durability === "synced",
      retention: this.#retention,
      sweeping: this.#sweeping,
    })
    this.#options.answer(replies, transfer)
    if (transaction === undefined) return
    this.#sweeping = transaction.littered
    this.#options.committed(transaction)
    const inlineBytes = durability === "written" ? writes.reduce((sum, { bytes }) => sum + bytes, 0) : 0
    this.#options.checkpoints.written(writes.length, inlineBytes + transaction.copiedBytes)
  }

  /** Fails the writes that have waited for the lock too long. */
  #giveUp(): void {
    const now = this.#parts.clock.monotonicMs()
    const { lockBoundMs } = this.#options
    for (const write of this.#dequeue(this.#writes.filter(({ sinceMs }) => now - sinceMs > lockBoundMs)))
      this.#refuse([write], lockTimeout(write.name, lockBoundMs))
  }

  #dequeue(writes: readonly QueuedWrite[]): EngineRequest[] {
    const taken = new Set(writes)
    this.#writes = this.#writes.filter((write) => !taken.has(write))
    return writes.map(({ request }) => request)
  }

  #refuse(requests: readonly EngineRequest[], error: unknown): void {
    const wire = errorToWire(storageError(error, "writing to the store"))
    if (requests.length > 0)
      this.#options.answer(
        requests.map(({ id }) => ({ id, error: wire })),
        [],
      )
  }
}

/** The topic as it was last known, or as it is; its durability never changes. */
function lookUp({ catalog, store }: EngineParts, name: TopicName): TopicRow | undefined {
  const known = catalog.peek(name)
  if (known !== undefined) return known
  try {
    return store.read(() => catalog.topic(store, name))
  } catch (error) {
    if (error instanceof NotFoundError) return undefined
    throw error
  }
}
