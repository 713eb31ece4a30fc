import { MillraceError } from "@millrace/contract"
import { type BatchingProducer, PublishFailedError, type SendResult } from "@millrace/core"
import type { Actor } from "./actor.ts"
import { type Lane, payloadOf, type RecordFact } from "./history.ts"
import type { World } from "./world.ts"

/** A batching producer: what fails reaches the program by its next send, flush or close. */
export class BatchingActor implements Actor {
  readonly lane: Lane
  readonly endsFirst = true
  readonly #world: World
  readonly #topic: string
  readonly #producer: BatchingProducer
  #ending: Promise<void> | undefined

  constructor(world: World, topic: string) {
    this.#world = world
    this.#topic = topic
    this.lane = world.history.addLane("batching")
    const { chance } = world
    const builder = world
      .topic(topic)
      .batching()
      .maxRecords(chance.of([1, 3, 50]))
      .maxBytes(chance.of([60, 1 << 20]))
      .linger(chance.of([1, 20, 500]))
    this.#producer = chance.happens(0.3) ? builder.partitionKey("key").build() : builder.build()
  }

  step(): void {
    const { chance, trace } = this.#world
    if (chance.happens(0.1)) {
      trace.note("client", `batching ${this.lane.id} flushes`)
      this.#producer.flush().catch((error: unknown) => this.#heard(error))
      return
    }
    for (let i = chance.of([1, 1, 4, 10]); i > 0; i--) this.#send()
  }

  end(timeoutMs: number): Promise<void> {
    this.#ending ??= this.#producer.close({ timeoutMs }).catch((error: unknown) => {
      this.#heard(error)
      throw error
    })
    return this.#ending
  }

  /** A send that fails tells of records of others too, and of its own, which was accepted by nobody. */
  #send(): void {
    const { history, nowMs, trace } = this.#world
    const to = { topic: this.#topic, startedMs: nowMs, promises: "accepted" } as const
    const call = history.addCall(this.lane, to, this.#world.sizes(1))
    call.hasHandle = true
    const promise = this.#producer.send(payloadOf(call.records[0] as RecordFact)).then(
      (): SendResult => ({ confirmations: [] }),
      (error: unknown) => {
        this.#heard(error)
        if (!(error instanceof PublishFailedError)) throw error
        trace.note("client", `batching ${this.lane.id} hears of ${error.unconfirmed.length} records`)
        // Whether its own record is stored, the failure as a whole does not say.
        const { kind } = error.publishCause() as MillraceError
        throw new MillraceError(kind, error.message, { outcome: "unknown" })
      },
    )
    this.#world.follow(call, promise)
  }

  #heard(error: unknown): void {
    const { history, nowMs } = this.#world
    if (error instanceof PublishFailedError)
      history.failures.push({ lane: this.lane, error, atMs: nowMs, mayReturn: false })
  }
}
