import {
  type Claim,
  HistoryChangedError,
  MillraceError,
  NotAssignedError,
  NotFoundError,
  type OffsetEntry,
  type OffsetOwner,
  type Position,
  type TopicPartition,
  TransactionStateError,
} from "@millrace/contract"
import type { SimTopic } from "./sim-topic.ts"

/** What the book asks of the backend around it. */
interface BookHost {
  /** @throws NotFoundError */
  topic(place: TopicPartition): SimTopic
  /** The claim under which a group's member owns the partition now. */
  claimOf(group: string, place: TopicPartition): Claim | undefined
  /** The id of the prepared transaction that holds these offsets. */
  holder(owner: OffsetOwner, place: TopicPartition): string | undefined
}

/** The stored progress of named consumers and groups: next offsets, each for one history, fenced by claims. No time, no faults. */
export class OffsetBook {
  readonly #host: BookHost
  readonly #entries = new Map<string, { readonly offset: bigint; readonly lineage: string }>()

  constructor(host: BookHost) {
    this.#host = host
  }

  load(owner: OffsetOwner, places: readonly TopicPartition[]): (Position | undefined | MillraceError)[] {
    return places.map((place) =>
      outcomeOf(() => {
        this.#checkHold(owner, place)
        return this.stored(owner, place)
      }),
    )
  }

  /** @throws NotFoundError */
  stored(owner: OffsetOwner, { stream, topic, partition }: TopicPartition): Position | undefined {
    const place = { stream, topic, partition }
    const { lineage } = this.#present(place)
    const entry = this.#entries.get(entryKey(owner, place))
    return entry === undefined || entry.lineage !== lineage ? undefined : { ...place, offset: entry.offset, lineage }
  }

  /** What is stored for the present history, without a look at whoever holds it. */
  peek(owner: OffsetOwner, place: TopicPartition): bigint | undefined {
    const outcome = outcomeOf(() => this.stored(owner, place))
    return outcome instanceof MillraceError ? undefined : outcome?.offset
  }

  /** @returns why it was not stored; `undefined` when it was */
  store(owner: OffsetOwner, entry: OffsetEntry): MillraceError | undefined {
    const refusal = this.check(owner, entry)
    if (refusal === undefined) this.commit(owner, entry)
    return refusal
  }

  /** @returns why it could not be stored now */
  check(owner: OffsetOwner, entry: OffsetEntry): MillraceError | undefined {
    return failureOf(() => {
      const { lineage } = this.#present(entry)
      if (lineage !== entry.lineage) throw new HistoryChangedError(`topic "${entry.topic}" has another history`)
      this.#checkClaim(owner, entry)
      this.#checkHold(owner, entry)
    })
  }

  /** Stores what was checked before, when that was the time for it. */
  commit(owner: OffsetOwner, entry: OffsetEntry): void {
    this.#entries.set(entryKey(owner, entry), { offset: entry.offset, lineage: entry.lineage })
  }

  /** @returns why nothing was forgotten; `undefined` when it was */
  delete(owner: OffsetOwner, entry: TopicPartition & { readonly claim?: Claim }): MillraceError | undefined {
    return failureOf(() => {
      this.#present(entry)
      this.#checkClaim(owner, entry)
      this.#checkHold(owner, entry)
      this.#entries.delete(entryKey(owner, entry))
    })
  }

  /** Nothing is known of the group any more. */
  forget(owner: OffsetOwner): void {
    const prefix = `${owner.kind}\n${owner.name}\n`
    for (const key of [...this.#entries.keys()]) if (key.startsWith(prefix)) this.#entries.delete(key)
  }

  #present(place: TopicPartition): SimTopic["description"] {
    const { description } = this.#host.topic(place)
    if (place.partition < description.partitions.length) return description
    throw new NotFoundError(`partition ${place.partition} of topic "${place.topic}" is not there`)
  }

  #checkHold(owner: OffsetOwner, place: TopicPartition): void {
    const holder = this.#host.holder(owner, place)
    if (holder === undefined) return
    const what = `the progress of "${owner.name}" in partition ${place.partition} of topic "${place.topic}"`
    const context = { transactionalId: holder }
    throw new TransactionStateError(`the prepared transaction of "${holder}" holds ${what}`, {
      retryable: true,
      context,
    })
  }

  #checkClaim(owner: OffsetOwner, entry: TopicPartition & { readonly claim?: Claim }): void {
    if (owner.kind !== "group") return
    const present = this.#host.claimOf(owner.name, entry)
    if (present?.token === entry.claim?.token) return
    throw new NotAssignedError(`partition ${entry.partition} of topic "${entry.topic}" is another member's`)
  }
}

function entryKey(owner: OffsetOwner, { stream, topic, partition }: TopicPartition): string {
  return `${owner.kind}\n${owner.name}\n${stream}/${topic}/${partition}`
}

function failureOf(work: () => void): MillraceError | undefined {
  const outcome = outcomeOf(work)
  return outcome instanceof MillraceError ? outcome : undefined
}

function outcomeOf<V>(work: () => V): V | MillraceError {
  try {
    return work()
  } catch (error) {
    if (error instanceof MillraceError) return error
    throw error
  }
}
