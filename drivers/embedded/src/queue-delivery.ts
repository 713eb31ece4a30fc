/** Messages of a queue as the taker sees them. */
import type { EncodedBatch, QueueDelivery, TopicName } from "@millrace/contract"

/** Messages that were handed out together, to one session. */
export interface Handed {
  /** Whose they are; nobody else settles them. */
  readonly owner: object
  /** The engine's number; 0: handing out has settled them. */
  readonly lease: number
  readonly name: TopicName
  readonly lineage: string
  readonly partition: number
  readonly first: bigint
  readonly deliveries: number
}

/** One message. It is its own token. */
export class StoredDelivery implements QueueDelivery {
  readonly handed: Handed
  /** Its place in the run of offsets that was handed out. */
  readonly place: number
  readonly batch: EncodedBatch
  readonly index: number

  constructor(handed: Handed, place: number, at: { readonly batch: EncodedBatch; readonly index: number }) {
    this.handed = handed
    this.place = place
    this.batch = at.batch
    this.index = at.index
  }

  get stream(): string {
    return this.handed.name.stream
  }

  get topic(): string {
    return this.handed.name.topic
  }

  get partition(): number {
    return this.handed.partition
  }

  get lineage(): string {
    return this.handed.lineage
  }

  get offset(): bigint {
    return this.handed.first + BigInt(this.place)
  }

  get deliveries(): number {
    return this.handed.deliveries
  }

  get token(): unknown {
    return this
  }
}
