import {
  type Claim,
  HistoryChangedError,
  InvalidError,
  type MillraceError,
  NotAssignedError,
  type OffsetEntry,
  type OffsetOwner,
  type OffsetStore,
  type Position,
  type TopicPartition,
} from "@millrace/contract"
import type { Partition } from "./codec/catalog-structures.ts"
import { deleteConsumerOffset, getConsumerOffset, storeConsumerOffset } from "./codec/group-commands.ts"
import type { Consumer } from "./codec/identifier.ts"
import { GroupClaim } from "./group-claim.ts"
import { withOutcome } from "./outcome.ts"
import { orErrors, type Places } from "./places.ts"
import { code, type Requests, refusedWith } from "./requests.ts"
import { keyOf, lookUpTopic, missingPartition, nameOf, partitionOf, type TopicView } from "./topic-lookup.ts"

/**
 * Offsets as the server keeps them, so that other clients go on where Millrace left off. The server stores the last *handled* offset: one less
 * than the contract's next. So it takes 1 up to the end; a next of 0 means that nothing was handled, and is kept by storing nothing.
 * Purging or deleting a topic removes its offsets, so what is found belongs to the present history.
 */
export class IggyOffsets implements OffsetStore {
  readonly #requests: Requests
  readonly #places: Places
  /** The last call of each owner, so that stores take effect in the order of the calls. */
  readonly #tails = new Map<string, Promise<unknown>>()

  constructor(requests: Requests, places: Places) {
    this.#requests = requests
    this.#places = places
  }

  async load(
    owner: OffsetOwner,
    partitions: readonly TopicPartition[],
  ): Promise<(Position | undefined | MillraceError)[]> {
    this.#requests.assertOpen()
    const look = this.#looks()
    return orErrors(
      partitions.map(async (place) => {
        const { stream, topic, partition } = place
        const view = await look(place)
        this.#partition(view, place)
        const query = { consumer: consumerOf(owner), stream, topic, partition }
        const found = await this.#requests.request(getConsumerOffset, query)
        if (found === undefined) return undefined
        return { stream, topic, partition, offset: found.storedOffset + 1n, lineage: view.lineage }
      }),
    )
  }

  store(owner: OffsetOwner, entries: readonly OffsetEntry[]): Promise<(MillraceError | undefined)[]> {
    return this.#inOrder(owner, () => {
      const look = this.#looks()
      return allOrErrors(entries.map((entry) => this.#storeOne(owner, entry, look)))
    })
  }

  delete(
    owner: OffsetOwner,
    entries: readonly (TopicPartition & { readonly claim?: Claim })[],
  ): Promise<(MillraceError | undefined)[]> {
    return this.#inOrder(owner, () => {
      const look = this.#looks()
      return allOrErrors(
        entries.map(async (entry) => {
          this.#partition(await look(entry), entry)
          await this.#through(owner, entry, { next: 0n })
          return undefined
        }),
      )
    })
  }

  async #storeOne(owner: OffsetOwner, entry: OffsetEntry, look: Look): Promise<undefined> {
    const view = await look(entry)
    if (view.lineage !== entry.lineage) throw historyChanged(entry, view)
    const partition = this.#partition(view, entry)
    try {
      await this.#through(owner, entry, { next: entry.offset })
    } catch (error) {
      if (!refusedWith(error, code.invalidOffset)) throw error
      throw await this.#places.outOfRange(entry, partition)
    }
  }

  /** A group's offsets are changed by the member that owns the partition, in its own session. */
  async #through(
    owner: OffsetOwner,
    place: TopicPartition & { readonly claim?: Claim },
    change: { readonly next: bigint },
  ): Promise<void> {
    if (owner.kind === "consumer") return this.#change(this.#requests, owner, place, change)
    const { claim } = place
    if (claim === undefined) {
      return this.#change(this.#requests, owner, place, change).catch((error: unknown) => {
        throw refusedWith(error, code.resourceNotFound) ? notOwned(owner, place) : error
      })
    }
    if (!(claim.token instanceof GroupClaim)) throw new InvalidError("the claim was not given out by this backend")
    if (!claim.token.covers(owner.name, place)) throw notOwned(owner, place)
    await claim.token.commit((requests) => this.#change(requests, owner, place, change))
  }

  async #change(
    requests: Requests,
    owner: OffsetOwner,
    { stream, topic, partition }: TopicPartition,
    { next }: { readonly next: bigint },
  ): Promise<void> {
    const place = { consumer: consumerOf(owner), stream, topic, partition, quorum: true }
    if (next > 0n) return requests.request(storeConsumerOffset, { ...place, offset: next - 1n })
    try {
      await requests.request(deleteConsumerOffset, place)
    } catch (error) {
      if (!refusedWith(error, code.offsetNotFound)) throw error
    }
  }

  #partition(view: TopicView, place: TopicPartition): Partition {
    const found = partitionOf(view, place.partition)
    if (found === undefined) throw missingPartition(place, place.partition, view.topic.partitions.length)
    return found
  }

  /** Looks at each topic once within one call. */
  #looks(): Look {
    const views = new Map<string, Promise<TopicView>>()
    return (name) => {
      const known = views.get(keyOf(name))
      if (known !== undefined) return known
      const view = lookUpTopic(this.#requests, name)
      views.set(keyOf(name), view)
      return view
    }
  }

  /** @throws ClosedError at once when the session is closed */
  async #inOrder<T>({ kind, name }: OffsetOwner, act: () => Promise<T>): Promise<T> {
    this.#requests.assertOpen()
    const key = `${kind}/${name}`
    const turn = (this.#tails.get(key) ?? Promise.resolve()).then(act)
    const settled = turn.then(ignore, ignore)
    this.#tails.set(key, settled)
    try {
      return await turn
    } finally {
      if (this.#tails.get(key) === settled) this.#tails.delete(key)
    }
  }
}

/** As `orErrors`, for changes: a call that fails as a whole may have done a part. */
async function allOrErrors(changes: readonly Promise<undefined>[]): Promise<(MillraceError | undefined)[]> {
  let changed = false
  const noted = changes.map(async (change) => {
    await change.catch((error: MillraceError) => {
      changed ||= error.outcome === "unknown"
      throw error
    })
    changed = true
    return undefined
  })
  try {
    return await orErrors(noted)
  } catch (error) {
    throw changed ? withOutcome(error, "unknown") : error
  }
}

type Look = (name: TopicPartition) => Promise<TopicView>

/** The caller has the outcome; the next in line only waits for it. */
function ignore(): void {}

function consumerOf({ kind, name }: OffsetOwner): Consumer {
  return { kind, id: name }
}

function historyChanged(entry: OffsetEntry, view: TopicView): HistoryChangedError {
  const { stream, topic, partition, offset, lineage } = entry
  return new HistoryChangedError(
    `offset ${offset} of partition ${partition} was not stored: topic ${nameOf(entry)} was purged or recreated, its history is ${view.lineage}, not ${JSON.stringify(lineage)}`,
    { context: { stream, topic, partition, offset, lineage: view.lineage } },
  )
}

/** Nothing was changed: the partition is not this member's. */
export function notOwned({ name }: OffsetOwner, place: TopicPartition): NotAssignedError {
  const { stream, topic, partition } = place
  return new NotAssignedError(
    `partition ${partition} of topic ${nameOf(place)} is not owned here in group ${JSON.stringify(name)}: only the member that owns it can store or delete its offset`,
    { context: { stream, topic, partition, group: name } },
  )
}
