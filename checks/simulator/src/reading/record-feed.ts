import { Headers, type MessageId } from "@millrace/contract"
import type { FaultyBackend } from "../backend/faulty-backend.ts"
import { SimBatch } from "../backend/sim-batch.ts"
import type { SimTopic } from "../backend/sim-topic.ts"
import type { Chance } from "../chance.ts"
import { numbered } from "../record-number.ts"

const watch = { made: (): void => {}, released: (): void => {} }

/** Keys that records have, or none. */
const keys = [null, ...[0, 1, 2].map((key) => new Uint8Array([key]))]

/** Somebody else who appends: what consumers are to read. Every record has a number of its own as its id and payload. */
export class RecordFeed {
  readonly #backend: FaultyBackend
  readonly #chance: Chance
  #records = 0

  constructor(backend: FaultyBackend, chance: Chance) {
    this.#backend = backend
    this.#chance = chance
  }

  /** How many records were appended. */
  get records(): number {
    return this.#records
  }

  /** Some records to one partition, in one batch. */
  append(topic: SimTopic, partition: number, count: number): void {
    const { clock } = this.#backend
    const timestampMicros = clock.nowMicros()
    const content = Array.from({ length: count }, () => {
      const number = ++this.#records
      const payload = numbered(number)
      const id: MessageId = BigInt(number)
      return { payload, key: this.#chance.of(keys), headers: Headers.empty, id, timestampMicros }
    })
    const stamp = { id: content[0]?.id ?? 0n, timestampMicros, resend: false }
    const batch = new SimBatch(topic.description, { partition, content, stamp, bytes: 10 * count }, watch)
    this.#backend.store(batch, undefined)
  }
}
