/** For tests: queues of an engine in this thread, settled and pulled by hand. */
import type { QueueDescription, QueueSpec, Settlement, TopicDescription } from "@millrace/contract"
import { encodedBatch } from "../reader.ts"
import { type EngineFixture, log } from "./engine.test-support.ts"
import type { PullAnswer } from "./queue-pull.ts"
import type { SettleOutcome } from "./queue-settle.ts"
import type { OpenedQueue } from "./queues.ts"

/** Explicit acknowledgements, a wait of a second, from the first record on. */
export const plainSpec: QueueSpec = {
  ackWaitMs: 1000,
  backoffMs: [],
  ackPolicy: "explicit",
  startAt: { kind: "first" },
}

/** A message that was pulled. */
export interface Pulled {
  readonly lease: number
  readonly partition: number
  readonly offset: bigint
  readonly deliveries: number
  readonly payload: Uint8Array | null
}

/** One taker of one queue of an engine. */
export class QueueFixture {
  readonly store: EngineFixture
  readonly topic: TopicDescription
  readonly spec: QueueSpec
  readonly #queue: string
  #id: number

  constructor(
    store: EngineFixture,
    topic: TopicDescription,
    options: { readonly spec?: Partial<QueueSpec>; readonly queue?: string } = {},
  ) {
    this.store = store
    this.topic = topic
    this.spec = { ...plainSpec, ...options.spec }
    this.#queue = options.queue ?? "work"
    this.#id = this.open()
  }

  /** Opens the queue, again after the store was. */
  open(): number {
    const opened = this.store.call<OpenedQueue>("queues.make", {
      topic: this.#name,
      queue: this.#queue,
      spec: this.spec,
    })
    this.#id = opened.id
    return opened.id
  }

  /** A pull as a request, to be asked together with others. */
  pullRequest(maxMessages: number): { readonly name: string; readonly args: unknown } {
    return { name: "queues.pull", args: { ...this.#call, limits: { maxMessages, maxBytes: 1 << 20 }, have: [] } }
  }

  pull(maxMessages: number = 1000, maxBytes: number = 1 << 20): Pulled[] {
    return this.pulled(this.store.call("queues.pull", { ...this.#call, limits: { maxMessages, maxBytes }, have: [] }))
  }

  /** The request to be told when a pull would find something. */
  askReady(maxWaitMs: number): number {
    const [id] = this.store.ask({ name: "queues.ready", args: { ...this.#call, maxWaitMs } })
    return id as number
  }

  settle(
    messages: readonly Pulled[],
    verdict: Settlement["verdict"] = "ack",
    options: { readonly delayMs?: number; readonly confirm?: boolean } = {},
  ): boolean[] {
    const runs = messages.map(({ lease, offset }) => ({
      lease,
      first: offset,
      count: 1,
      verdict,
      delayMs: options.delayMs ?? 0,
    }))
    const outcomes = this.store.call<SettleOutcome[]>("queues.settle", {
      ...this.#call,
      runs,
      confirm: options.confirm ?? false,
    })
    return outcomes.map((outcome) => (typeof outcome === "boolean" ? outcome : outcome[0] === 1))
  }

  describe(): QueueDescription {
    return this.store.call("queues.describe", { topic: this.#name, queue: this.#queue })
  }

  delete(): void {
    this.store.call("queues.delete", { topic: this.#name, queue: this.#queue })
  }

  pulled({ leases, buffers }: PullAnswer): Pulled[] {
    const messages: Pulled[] = []
    for (const { lease, partition, first, count, done, deliveries, batches } of leases) {
      const seen = new Map<bigint, Uint8Array | null>()
      for (const batch of batches) {
        if (batch.buffer === undefined) throw new Error("the fixture has no batches")
        const decoded = encodedBatch(batch, buffers)
        for (let i = 0; i < decoded.count; i++) seen.set(decoded.offset(i), decoded.payload(i))
      }
      for (let place = 0; place < count; place++) {
        if (done !== undefined && ((done[place >> 3] as number) & (1 << (place & 7))) !== 0) continue
        const offset = first + BigInt(place)
        const payload = seen.get(offset)
        if (payload === undefined) throw new Error(`offset ${offset} was handed out without its record`)
        messages.push({ lease, partition, offset, deliveries, payload })
      }
    }
    return messages
  }

  get #name(): { readonly stream: string; readonly topic: string } {
    return { stream: this.topic.stream ?? log.stream, topic: this.topic.topic }
  }

  get #call(): {
    readonly topic: { readonly stream: string; readonly topic: string }
    readonly queue: number
    readonly name: string
  } {
    return { topic: this.#name, queue: this.#id, name: this.#queue }
  }
}

/** The offsets of messages. */
export function offsets(messages: readonly Pulled[]): number[] {
  return messages.map(({ offset }) => Number(offset))
}
