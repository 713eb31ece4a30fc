/**
 * The contract's offset store over a key-value bucket. Named consumers simply write. An offset of a group is written by compare-and-set
 * under a claim: a new owner puts its mark on the entry before it is told of the partition (`fence`), so that a commit of an older
 * claim fails on the server, however late it arrives.
 */
import {
  type Claim,
  HistoryChangedError,
  MillraceError,
  NotAssignedError,
  type OffsetEntry,
  type OffsetOwner,
  type OffsetStore,
  type Position,
  type TopicName,
  type TopicPartition,
} from "@millrace/contract"
import type { Connection } from "./connection.ts"
import { type GroupClaimToken, tokenOf } from "./groups-claim.ts"
import type { GroupRecord } from "./groups-record.ts"
import { GroupStore } from "./groups-store.ts"
import type { OwnClaim } from "./groups-view.ts"
import { OffsetsBucket } from "./offsets-bucket.ts"
import { type ClaimMark, formatOffset, parseOffset, type StoredOffset } from "./offsets-entry.ts"
import { offsetKey, topicOffsets } from "./offsets-key.ts"
import { OffsetsQueue } from "./offsets-queue.ts"
import { checkPartition, described, type TopicLayout, type TopicLayouts } from "./topic-layout.ts"

/** How often a write is tried when the entry was written by others meanwhile. */
const mostAttempts = 10

/** What the store works with. */
export interface OffsetsTools {
  readonly connection: Connection
  readonly layouts: TopicLayouts
}

/** An entry as it was last seen or written by this session. */
interface Kept extends StoredOffset {
  readonly revision: number
}

export class NatsOffsets implements OffsetStore {
  readonly bucket: OffsetsBucket
  readonly groups: GroupStore
  readonly #layouts: TopicLayouts
  readonly #connection: Connection
  readonly #queue = new OffsetsQueue()
  /** Entries of claims, so that a commit need not read first. At most one a claim that was given out and not given back. */
  readonly #kept = new Map<string, Kept>()

  constructor({ connection, layouts }: OffsetsTools) {
    this.#connection = connection
    this.#layouts = layouts
    this.bucket = new OffsetsBucket(connection)
    this.groups = new GroupStore(connection, this.bucket)
  }

  load(owner: OffsetOwner, partitions: readonly TopicPartition[]): Promise<(Position | undefined | MillraceError)[]> {
    const find = this.#finder()
    return this.#each(partitions, async (place) => {
      const { stream, topic, partition } = place
      const { lineage } = await find(place)
      const key = offsetKey(owner, { stream, topic, partition, lineage })
      const { value } = await this.bucket.get(key)
      const { offset } = parseOffset(key, value)
      return offset === undefined ? undefined : { stream, topic, partition, offset, lineage }
    })
  }

  store(owner: OffsetOwner, entries: readonly OffsetEntry[]): Promise<(MillraceError | undefined)[]> {
    const find = this.#finder()
    return this.#each(entries, (entry) =>
      this.#queue.run(placeKey(owner, entry), async (): Promise<undefined> => {
        const { lineage } = await find(entry)
        if (entry.lineage !== lineage) throw historyChanged(entry, lineage)
        await this.#write(owner, entry, entry.offset)
      }),
    )
  }

  delete(
    owner: OffsetOwner,
    entries: readonly (TopicPartition & { readonly claim?: Claim })[],
  ): Promise<(MillraceError | undefined)[]> {
    const find = this.#finder()
    return this.#each(entries, (entry) =>
      this.#queue.run(placeKey(owner, entry), async (): Promise<undefined> => {
        const { lineage } = await find(entry)
        const place = { ...entry, lineage }
        if (owner.kind === "consumer") await this.bucket.purge(offsetKey(owner, place))
        else await this.#write(owner, place, undefined)
      }),
    )
  }

  /** Removes all offsets that were stored for a topic, of whatever history. For a topic that is deleted. */
  async forget(topic: TopicName): Promise<void> {
    this.#kept.clear()
    await this.bucket.purge(topicOffsets(topic))
  }

  /** Removes the offsets of a group on a topic. */
  async forgetGroup(group: string, topic: TopicName): Promise<void> {
    this.#kept.clear()
    await this.bucket.purge(topicOffsets(topic, { kind: "group", name: group }))
  }

  /**
   * Puts the mark of a new claim on its entry: from here on no older claim writes. Answers false when a newer claim was there first.
   * @throws MillraceError when it is not known to be done
   */
  async fence(group: string, claim: OwnClaim, mark: ClaimMark): Promise<boolean> {
    const owner: OffsetOwner = { kind: "group", name: group }
    const key = offsetKey(owner, claim)
    return await this.#queue.run(placeKey(owner, claim), async () => {
      for (let attempt = 0; attempt < mostAttempts; attempt++) {
        const kept = await this.#read(key)
        if (kept.claim?.group === mark.group && kept.claim.number > mark.number) return false
        if (await this.#put(key, { offset: kept.offset, claim: mark }, kept.revision)) return true
      }
      throw tooManyRivals(key)
    })
  }

  /** A claim is void: what is kept of it for the next commit is of no use. */
  drop(group: string, claim: OwnClaim): void {
    this.#kept.delete(offsetKey({ kind: "group", name: group }, claim))
  }

  async #write(
    owner: OffsetOwner,
    entry: Omit<Position, "offset"> & { readonly claim?: Claim },
    offset: bigint | undefined,
  ): Promise<void> {
    const key = offsetKey(owner, entry)
    if (owner.kind === "consumer") {
      await this.bucket.put(key, formatOffset({ offset, claim: undefined }))
      return
    }
    const token = entry.claim === undefined ? undefined : this.#checkedToken(owner, entry)
    for (let attempt = 0; attempt < mostAttempts; attempt++) {
      const kept = (token === undefined ? undefined : this.#kept.get(key)) ?? (await this.#read(key))
      if (token === undefined) await this.#refuseOwned(owner, entry)
      else if (!same(kept.claim, token.mark)) await this.#refuseOlder(owner, { entry, kept, mark: token.mark })
      // The membership may have let go of it while this waited for its turn or for an answer.
      if (token?.isVoid) throw notAssigned(owner, entry)
      if (await this.#put(key, { offset, claim: token?.mark ?? kept.claim }, kept.revision)) return
    }
    throw tooManyRivals(key)
  }

  /** @throws NotAssignedError for a claim that is void, or of another place */
  #checkedToken(owner: OffsetOwner, entry: Omit<Position, "offset"> & { readonly claim?: Claim }): GroupClaimToken {
    const claim = entry.claim as Claim
    const token = tokenOf(claim)
    const here = claim.stream === entry.stream && claim.topic === entry.topic && claim.partition === entry.partition
    if (
      token === undefined ||
      !here ||
      token.groupName !== owner.name ||
      token.isVoid ||
      token.lineage !== entry.lineage
    ) {
      throw notAssigned(owner, entry)
    }
    return token
  }

  /** The entry does not carry the claim's mark: only the group's record can tell whether the claim is still good. */
  async #refuseOlder(
    owner: OffsetOwner,
    { entry, kept, mark }: { readonly entry: TopicPartition; readonly kept: Kept; readonly mark: ClaimMark },
  ): Promise<void> {
    if (kept.claim?.group === mark.group && kept.claim.number > mark.number) throw notAssigned(owner, entry)
    const { record } = await this.groups.read(owner.name)
    const good = record?.id === mark.group && record.claims.some(({ number }) => number === mark.number)
    if (!good) throw notAssigned(owner, entry)
  }

  async #refuseOwned(owner: OffsetOwner, entry: TopicPartition): Promise<void> {
    const { record } = await this.groups.read(owner.name)
    if (record !== undefined && ownerOf(record, entry) !== undefined) throw notAssigned(owner, entry)
  }

  async #read(key: string): Promise<Kept> {
    const { revision, value } = await this.bucket.get(key)
    return { ...parseOffset(key, value), revision }
  }

  /** Answers false when another write came between; whatever the outcome, what is kept is true or nothing. */
  async #put(key: string, entry: StoredOffset, ifRevision: number): Promise<boolean> {
    this.#kept.delete(key)
    const revision = await this.bucket.put(key, formatOffset(entry), { ifRevision })
    if (revision === undefined) return false
    if (entry.claim !== undefined) this.#kept.set(key, { ...entry, revision })
    return true
  }

  /** Finds each topic once a call. */
  #finder(): (place: TopicPartition) => Promise<TopicLayout> {
    const found = new Map<string, Promise<TopicLayout>>()
    return async (place) => {
      const key = `${place.stream}\n${place.topic}`
      let finding = found.get(key)
      if (finding === undefined) {
        finding = this.#layouts.find(place)
        found.set(key, finding)
      }
      const layout = await finding
      checkPartition(layout, place.partition)
      return layout
    }
  }

  async #each<P, T>(places: readonly P[], work: (place: P) => Promise<T>): Promise<(T | MillraceError)[]> {
    if (this.#connection.closed) this.#connection.check()
    return await Promise.all(
      places.map((place) =>
        work(place).catch((error: unknown) => {
          if (error instanceof MillraceError && error.kind !== "closed") return error
          throw error
        }),
      ),
    )
  }
}

/** The claim on a partition, if somebody has it. */
function ownerOf(record: GroupRecord, { stream, topic, partition }: TopicPartition): number | undefined {
  const own = record.topics.find((one) => one.stream === stream && one.topic === topic)
  if (own === undefined) return undefined
  return record.claims.find((claim) => claim.topic === own.number && claim.partition === partition)?.number
}

function same(one: ClaimMark | undefined, other: ClaimMark): boolean {
  return one?.group === other.group && one.number === other.number
}

function placeKey({ kind, name }: OffsetOwner, { stream, topic, partition }: TopicPartition): string {
  return JSON.stringify([kind, name, stream, topic, partition])
}

function notAssigned({ name }: OffsetOwner, { stream, topic, partition }: TopicPartition): NotAssignedError {
  return new NotAssignedError(
    `partition ${partition} of topic ${described({ stream, topic })} is not assigned to this member of group ${JSON.stringify(name)} any more: nothing was stored`,
    { context: { group: name, stream, topic, partition } },
  )
}

function historyChanged(entry: OffsetEntry, lineage: string): HistoryChangedError {
  const { stream, topic, partition, offset } = entry
  return new HistoryChangedError(
    `offset ${offset} of partition ${partition} of topic ${described(entry)} belongs to another history (${entry.lineage}) than the topic has now (${lineage}): nothing was stored`,
    { context: { stream, topic, partition, offset } },
  )
}

function tooManyRivals(key: string): MillraceError {
  return new MillraceError(
    "throttled",
    `${key} of the bucket is written by others all the time: ${mostAttempts} attempts failed`,
  )
}
