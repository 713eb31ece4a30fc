import {
  ClosedError,
  MillraceError,
  type QueueDelivery,
  type QueuePullLimits,
  type QueueSession,
  type QueueSpec,
  type Settlement,
  type TopicName,
} from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import type { Fate, QueueRequest, ReadOddity } from "./fate.ts"
import type { FaultySession } from "./faulty-session.ts"
import type { PartitionLog, StoredBatch } from "./partition-log.ts"
import type { QueueWatch } from "./queue-watch.ts"
import type { Requests } from "./requests.ts"
import { SimEncodedBatch } from "./sim-encoded-batch.ts"
import type { QueueToken, SimQueue } from "./sim-queue.ts"

/** How a session on a queue reaches the backend. */
export interface QueueLine {
  readonly session: FaultySession
  readonly clock: Clock
  readonly requests: Requests
  readonly watch: QueueWatch
  readonly fate: () => Fate
  readonly oddity: () => ReadOddity
  readonly ask: <T>(request: QueueRequest, work: () => T) => Promise<T>
  /** Calls back at every change of the log or of a queue, until the answer is called. */
  readonly onChange: (look: () => void) => () => void
  /** Messages of the queue may be free for others. */
  readonly changed: () => void
}

/** One taker of a queue. */
export class SimQueueSession implements QueueSession {
  readonly #line: QueueLine
  readonly #name: TopicName
  readonly #queue: SimQueue
  readonly #pulls = new Set<Pull>()
  #isClosed = false

  constructor(line: QueueLine, name: TopicName, queue: SimQueue) {
    this.#line = line
    this.#name = name
    this.#queue = queue
  }

  get spec(): QueueSpec {
    return this.#queue.spec
  }

  pull(limits: QueuePullLimits): Promise<QueueDelivery[]> {
    if (this.#isClosed) return Promise.reject(new ClosedError("the session on the queue was closed"))
    return new Promise((resolve, reject) => {
      const { session, watch } = this.#line
      const pull = new Pull(this.#line, this.#queue, {
        limits,
        deliver: (taken) => {
          this.#pulls.delete(pull)
          for (const { token } of taken) watch.heard(session, this.#queue, token)
          resolve(taken.map(({ token, log }) => this.#delivery(token, log)))
        },
        fail: (error) => {
          this.#pulls.delete(pull)
          reject(error)
        },
      })
      this.#pulls.add(pull)
      pull.begin()
    })
  }

  async settle(
    list: readonly Settlement[],
    { confirm }: { readonly confirm: boolean },
  ): Promise<(boolean | MillraceError)[]> {
    if (this.#isClosed) throw new ClosedError("the session on the queue was closed")
    const { session, watch, ask, changed } = this.#line
    for (const settlement of list) watch.settling(session, this.#queue, settlement, confirm)
    try {
      const outcomes = await ask("settle", () => {
        const counts = list.map((settlement) => {
          const one = this.#queue.settle(settlement, confirm)
          watch.settled(session, this.#queue, settlement, one)
          return one
        })
        changed()
        return counts
      })
      for (const [index, settlement] of list.entries()) {
        watch.answered(session, settlement, outcomes[index] as boolean)
      }
      return outcomes
    } catch (error) {
      if (error instanceof MillraceError) for (const settlement of list) watch.answered(session, settlement, error)
      throw error
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const pull of this.#pulls) pull.cancel()
  }

  #delivery({ partition, offset, lineage, deliveries }: QueueToken, log: PartitionLog): QueueDelivery {
    const [stored] = [...log.batchesFrom(offset)] as [StoredBatch]
    const visible = stored.records.map((_, index) => index)
    const token: QueueToken = { partition, offset, lineage, deliveries }
    return {
      stream: this.#name.stream,
      topic: this.#name.topic,
      partition,
      offset: BigInt(offset),
      lineage,
      batch: new SimEncodedBatch(stored.base, stored.records, visible),
      index: offset - stored.base,
      deliveries,
      token,
    }
  }
}

type Taken = ReturnType<SimQueue["take"]>

interface PullHost {
  readonly limits: QueuePullLimits
  readonly deliver: (taken: Taken) => void
  readonly fail: (error: MillraceError) => void
}

/** One pull: on its way, waiting for messages, on its way back. What is handed out to one whose answer is lost is held by nobody. */
class Pull {
  readonly #line: QueueLine
  readonly #queue: SimQueue
  readonly #host: PullHost
  readonly #fate: Fate
  readonly #oddity: ReadOddity
  #answer: ((answerMs: number, answer: () => void) => void) | undefined
  #arrival: Timer | undefined
  #end: Timer | undefined
  #due: Timer | undefined
  #unlisten: (() => void) | undefined

  constructor(line: QueueLine, queue: SimQueue, host: PullHost) {
    this.#line = line
    this.#queue = queue
    this.#host = host
    this.#fate = line.fate()
    this.#oddity = line.oddity()
  }

  begin(): void {
    const { requests, clock } = this.#line
    const { kind, arriveMs, answerMs, error } = this.#fate
    this.#answer = requests.begin((reason) => {
      this.#stop()
      this.#host.fail(reason)
    })
    if (this.#answer === undefined) return
    if (kind === "answer") {
      this.#arrival = clock.setTimer(arriveMs, () => this.#wait())
      return
    }
    const isDone = kind === "lose" || kind === "silence"
    const reason = error ?? new MillraceError("connection", "the pull was lost", { outcome: "unknown" })
    if (isDone) clock.setTimer(arriveMs, () => this.#takeInVain())
    this.#answer(arriveMs + answerMs, () => this.#host.fail(reason))
    this.#answer = undefined
  }

  /** The session is closed: nothing is answered, and nothing handed out. */
  cancel(): void {
    this.#finish([])
  }

  #wait(): void {
    if (this.#oddity === "early") {
      this.#finish([])
      return
    }
    const { clock, onChange } = this.#line
    this.#unlisten = onChange(() => this.#look())
    this.#end = clock.setTimer(this.#host.limits.maxWaitMs, () => this.#finish([]))
    this.#look()
  }

  #look(): void {
    if (this.#unlisten === undefined) return
    let taken: Taken
    try {
      taken = this.#take()
    } catch (error) {
      const answer = this.#answer
      this.#stop()
      answer?.(this.#fate.answerMs, () => this.#host.fail(error as MillraceError))
      return
    }
    if (taken.length > 0) {
      this.#finish(taken)
      return
    }
    this.#due?.cancel()
    const dueMs = this.#queue.nextDueMs
    if (dueMs === undefined) return
    const { clock } = this.#line
    this.#due = clock.setTimer(Math.max(0, dueMs - clock.monotonicMs()), () => this.#look())
  }

  #take(): Taken {
    const { maxMessages, maxBytes } = this.#host.limits
    const isPartial = this.#oddity === "partial"
    const taken = this.#queue.take(Math.min(isPartial ? 1 : maxMessages, Math.max(1, Math.floor(maxBytes / 10))))
    for (const { token } of taken) this.#line.watch.handedOut(this.#line.session, this.#queue, token)
    return taken
  }

  #takeInVain(): void {
    try {
      this.#take()
    } catch {
      // The queue is gone: there was nothing to hand out.
    }
  }

  #finish(taken: Taken): void {
    const answer = this.#answer
    this.#stop()
    answer?.(this.#fate.answerMs, () => this.#host.deliver(taken))
  }

  #stop(): void {
    this.#arrival?.cancel()
    this.#end?.cancel()
    this.#due?.cancel()
    this.#unlisten?.()
    this.#unlisten = undefined
    this.#answer = undefined
  }
}
