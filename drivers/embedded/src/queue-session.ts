/** One taker of a work queue, over a channel to the engine. */
import {
  CancelledError,
  ClosedError,
  type EncodedBatch,
  MillraceError,
  type QueueDelivery,
  type QueuePullLimits,
  type QueueSession,
  type QueueSpec,
  type Settlement,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { Channel } from "./channel.ts"
import type { PullAnswer, PulledLease, QueuePull } from "./engine/queue-pull.ts"
import type { QueueCall } from "./engine/queue-row.ts"
import type { QueueSettle, SettleOutcome, SettleRun } from "./engine/queue-settle.ts"
import type { QueueReady } from "./engine/queues.ts"
import { type Handed, StoredDelivery } from "./queue-delivery.ts"
import { encodedBatch } from "./reader.ts"

/** Batches whose records were not all handed out at once are kept for the next pull: so many, and of so many bytes in all. */
const mostBatches = 16
const mostBatchBytes = 16 << 20

/** What a session is made of. */
export interface QueueSessionParts {
  readonly channel: Channel
  readonly clock: Clock
  readonly call: QueueCall
  readonly spec: QueueSpec
  readonly closed: (session: EmbeddedQueueSession) => void
}

export class EmbeddedQueueSession implements QueueSession {
  readonly spec: QueueSpec
  readonly #channel: Channel
  readonly #clock: Clock
  readonly #call: QueueCall
  readonly #onClosed: (session: EmbeddedQueueSession) => void
  readonly #waits = new AbortController()
  readonly #kept = new Map<bigint, EncodedBatch>()
  #keptBytes = 0
  /** The last pull found nothing: the next one asks whether there is something, which writes nothing, before it takes. */
  #dry = false
  readonly #pulls = new Set<Promise<unknown>>()
  #ended = false
  #closing: Promise<void> | undefined

  constructor({ channel, clock, call, spec, closed }: QueueSessionParts) {
    this.spec = spec
    this.#channel = channel
    this.#clock = clock
    this.#call = call
    this.#onClosed = closed
  }

  async pull(limits: QueuePullLimits): Promise<QueueDelivery[]> {
    if (this.#ended) throw closedSession()
    const pull = this.#pull(limits)
    this.#pulls.add(pull)
    try {
      return await pull
    } finally {
      this.#pulls.delete(pull)
    }
  }

  async settle(
    list: readonly Settlement[],
    { confirm }: { readonly confirm: boolean },
  ): Promise<(boolean | MillraceError)[]> {
    if (this.#ended) throw closedSession()
    const outcomes: (boolean | MillraceError)[] = new Array(list.length).fill(false)
    const { runs, places } = this.#runs(list)
    if (runs.length === 0) return outcomes
    const args: QueueSettle = { ...this.#call, runs, confirm }
    const answers = await this.#channel.call<SettleOutcome[]>("queues.settle", args)
    answers.forEach((answer, i) => {
      const first = places[i] as number
      const count = (runs[i] as SettleRun).count
      for (let at = 0; at < count; at++) outcomes[first + at] = typeof answer === "boolean" ? answer : answer[at] === 1
    })
    return outcomes
  }

  /** What is being handed out just now is given back. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#ended = true
    this.#waits.abort()
    await Promise.allSettled(this.#pulls)
    this.#kept.clear()
    this.#onClosed(this)
  }

  async #pull({ maxMessages, maxBytes, maxWaitMs }: QueuePullLimits): Promise<QueueDelivery[]> {
    const deadlineMs = this.#clock.monotonicMs() + maxWaitMs
    try {
      for (let leftMs = maxWaitMs; ; leftMs = deadlineMs - this.#clock.monotonicMs()) {
        if (this.#dry && leftMs > 0 && !(await this.#isReady(leftMs))) return []
        const deliveries = await this.#take({ maxMessages, maxBytes })
        this.#dry = deliveries.length === 0
        if (!this.#dry || leftMs <= 0 || this.#ended) return deliveries
      }
    } catch (error) {
      if (this.#ended && (error instanceof CancelledError || error instanceof ClosedError)) return []
      throw error
    }
  }

  #isReady(maxWaitMs: number): Promise<boolean> {
    const args: QueueReady = { ...this.#call, maxWaitMs }
    return this.#channel.call<boolean>("queues.ready", args, { signal: this.#waits.signal })
  }

  async #take(limits: QueuePull["limits"]): Promise<StoredDelivery[]> {
    // What is kept now may be dropped before the answer is there.
    const kept = new Map(this.#kept)
    const args: QueuePull = { ...this.#call, limits, have: [...kept.keys()] }
    const answer = await this.#channel.call<PullAnswer>("queues.pull", args)
    if (this.#ended) {
      await this.#giveBack(answer.leases)
      return []
    }
    const deliveries: StoredDelivery[] = []
    for (const lease of answer.leases) this.#unpack(deliveries, lease, { answer, kept })
    return deliveries
  }

  #unpack(
    deliveries: StoredDelivery[],
    lease: PulledLease,
    { answer, kept }: { readonly answer: PullAnswer; readonly kept: ReadonlyMap<bigint, EncodedBatch> },
  ): void {
    const { partition, first, count, done } = lease
    const handed: Handed = {
      owner: this,
      lease: lease.lease,
      name: this.#call.topic,
      lineage: answer.lineage,
      partition,
      first,
      deliveries: lease.deliveries,
    }
    for (const pulled of lease.batches) {
      const { row } = pulled
      const batch = pulled.buffer === undefined ? kept.get(row) : encodedBatch(pulled, answer.buffers)
      if (batch === undefined) throw new ClosedError("a batch of the pull was dropped before its answer")
      const offset = Number(batch.firstOffset - first)
      const from = Math.max(0, offset)
      const to = Math.min(count, offset + batch.count)
      for (let place = from; place < to; place++) {
        if (done !== undefined && ((done[place >> 3] as number) & (1 << (place & 7))) !== 0) continue
        deliveries.push(new StoredDelivery(handed, place, { batch, index: place - offset }))
      }
      if (offset + batch.count > count) this.#keep(row, batch)
      else this.#drop(row)
    }
  }

  /** A closed taker wants nothing any more: others need not wait for its messages. */
  async #giveBack(leases: readonly PulledLease[]): Promise<void> {
    const runs = leases
      .filter(({ lease }) => lease !== 0)
      .map(({ lease, first, count }): SettleRun => ({ lease, first, count, verdict: "nak", delayMs: 0 }))
    if (runs.length === 0) return
    const args: QueueSettle = { ...this.#call, runs, confirm: false }
    try {
      await this.#channel.call("queues.settle", args)
    } catch (error) {
      // Then they come back when their wait is over.
      if (!(error instanceof MillraceError)) throw error
    }
  }

  /** Neighbours of one delivery with the same verdict go together. Tokens of others are left out: they settle nothing. */
  #runs(list: readonly Settlement[]): { readonly runs: SettleRun[]; readonly places: number[] } {
    const runs: SettleRun[] = []
    const places: number[] = []
    for (let i = 0; i < list.length; ) {
      const settlement = list[i] as Settlement
      const { token, verdict, delayMs = 0 } = settlement
      if (!this.#owns(token)) {
        i += 1
        continue
      }
      const { handed, place } = token
      let count = 1
      for (; i + count < list.length; count++) {
        const next = list[i + count] as Settlement
        const follows = next.verdict === verdict && (next.delayMs ?? 0) === delayMs
        if (!follows || !(next.token instanceof StoredDelivery)) break
        if (next.token.handed !== handed || next.token.place !== place + count) break
      }
      runs.push({ lease: handed.lease, first: token.offset, count, verdict, delayMs })
      places.push(i)
      i += count
    }
    return { runs, places }
  }

  #owns(token: unknown): token is StoredDelivery {
    return token instanceof StoredDelivery && token.handed.owner === this && token.handed.lease !== 0
  }

  #keep(row: bigint, batch: EncodedBatch): void {
    this.#drop(row)
    this.#kept.set(row, batch)
    this.#keptBytes += batch.bytes
    for (const [oldest] of this.#kept) {
      if (this.#kept.size <= mostBatches && (this.#keptBytes <= mostBatchBytes || this.#kept.size === 1)) break
      this.#drop(oldest)
    }
  }

  #drop(row: bigint): void {
    const batch = this.#kept.get(row)
    if (batch === undefined) return
    this.#kept.delete(row)
    this.#keptBytes -= batch.bytes
  }
}

function closedSession(): ClosedError {
  return new ClosedError("the queue is closed here")
}
