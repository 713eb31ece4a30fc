/** The contract's offsets in Kafka's groups: commits fenced by the member that has the partition, for one history of a topic. */
import {
  type Claim,
  ClosedError,
  type Lineage,
  MillraceError,
  NotAssignedError,
  type OffsetEntry,
  type OffsetOwner,
  type OffsetStore,
  type Position,
  type TopicPartition,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { Cluster } from "../cluster/cluster.ts"
import { errorCode, kafkaError, meansNoTopic } from "../errors.ts"
import { asMillraceError, placeText } from "../fetch/slot-lookup.ts"
import { ClaimToken, type Fence } from "../groups/claim-token.ts"
import type { Pauses } from "../pauses.ts"
import { offsetFetchApi } from "../protocol/api.ts"
import { Attempts } from "./attempts.ts"
import { kafkaGroup } from "./offset-owner.ts"
import {
  type Committed,
  commitOffsets,
  deleteOffsets,
  fetchOffsets,
  type OffsetPlace,
  type OffsetsOutcome,
} from "./offset-requests.ts"
import { type KnownPlace, TopicCheck } from "./topic-check.ts"

/** What an offset store works with. */
export interface OffsetTools {
  readonly cluster: Cluster
  readonly clock: Clock
  readonly random: Random
  /** Of the session: they end when it is closed. */
  readonly pauses: Pauses
}

/** From this version on the coordinator itself tells the incarnations of a topic apart. */
const firstVersionWithIds = 10
/** An offset below 0 is none, for Kafka and its clients: what a member writes that deletes the offset of a partition it has. */
const noOffset = -1n

type Outcome = MillraceError | undefined

/** One entry of a call, on its way. */
interface Entry extends TopicPartition {
  readonly index: number
  readonly offset: bigint
  readonly lineage: Lineage | undefined
  readonly claim: Claim | undefined
}

export class KafkaOffsetStore implements OffsetStore {
  readonly #tools: OffsetTools
  /** The last write of each group: writes of one group take effect in the order of the calls. */
  readonly #tails = new Map<string, Promise<unknown>>()
  #closed = false

  constructor(tools: OffsetTools) {
    this.#tools = tools
  }

  /** Later calls fail with ClosedError; what is under way ends with the cluster. */
  close(): void {
    this.#closed = true
  }

  async load(
    owner: OffsetOwner,
    partitions: readonly TopicPartition[],
  ): Promise<(Position | undefined | MillraceError)[]> {
    this.#checkOpen()
    const group = kafkaGroup(owner)
    if (partitions.length === 0) return []
    const outcomes = new Array<Position | undefined | MillraceError>(partitions.length).fill(undefined)
    let left = partitions.map((_, index) => index)
    const attempts = this.#attempts(group)
    // A topic that the coordinator does not know by its id is looked up once more: it is gone, or another has its name.
    for (let again = true; left.length > 0; again = false) {
      const places = await this.#places(partitions, left, outcomes, { fresh: !again })
      if (places.length === 0) break
      const found = await attempts.run(() => fetchOffsets(this.#tools.cluster, group, places))
      left = []
      for (const [nth, place] of places.entries()) {
        const outcome = found[nth] as OffsetsOutcome<Committed | undefined>
        const partition = partitions[place.index] as TopicPartition
        if ("code" in outcome) {
          if (again && meansNoTopic(outcome.code)) left.push(place.index)
          else outcomes[place.index] = refused("loading", group, { place: partition, code: outcome.code })
        } else if (outcome.value !== undefined) {
          const { stream, topic, partition: number } = partition
          outcomes[place.index] = {
            stream,
            topic,
            partition: number,
            offset: outcome.value.offset,
            lineage: place.topicId,
          }
        }
      }
    }
    return outcomes
  }

  async store(owner: OffsetOwner, entries: readonly OffsetEntry[]): Promise<Outcome[]> {
    this.#checkOpen()
    const group = kafkaGroup(owner)
    if (entries.length === 0) return []
    const list = entries.map(({ stream, topic, partition, offset, lineage, claim }, index) => ({
      ...{ index, stream, topic, partition, offset, lineage, claim },
    }))
    return this.#inOrder(group, () => this.#write(group, list))
  }

  async delete(
    owner: OffsetOwner,
    entries: readonly (TopicPartition & { readonly claim?: Claim })[],
  ): Promise<Outcome[]> {
    this.#checkOpen()
    const group = kafkaGroup(owner)
    if (entries.length === 0) return []
    const list = entries.map(({ stream, topic, partition, claim }, index) => ({
      ...{ index, stream, topic, partition, offset: noOffset, lineage: undefined, claim },
    }))
    return this.#inOrder(group, async () => {
      const [claimed, free] = [list.filter(({ claim }) => claim !== undefined), list.filter(({ claim }) => !claim)]
      const outcomes = new Array<Outcome>(list.length).fill(undefined)
      // The coordinator deletes no offset of a topic that members read, but lets the owner of a partition write.
      const written = claimed.length === 0 ? [] : await this.#write(group, claimed)
      for (const [nth, { index }] of claimed.entries()) outcomes[index] = written[nth]
      if (free.length > 0) await this.#deleteFree(group, free, outcomes)
      return outcomes
    })
  }

  /** Writes under the claims of the entries. One outcome an entry, in the order of the list. */
  async #write(group: string, list: readonly Entry[]): Promise<Outcome[]> {
    const outcomes = new Map<Entry, Outcome>()
    const topics = new TopicCheck(this.#tools.cluster)
    const places = new Map<Entry, KnownPlace>()
    await Promise.all(
      list.map(async (entry) => {
        const place = await topics.look(entry, entry.lineage)
        if (place instanceof MillraceError) outcomes.set(entry, place)
        else places.set(entry, place)
      }),
    )
    const attempts = this.#attempts(group)
    let left = [...places.keys()]
    while (left.length > 0) {
      const again: Entry[] = []
      for (const [fence, entries] of byFence(group, left, outcomes)) {
        again.push(...(await this.#commit({ group, fence, places, topics }, entries, outcomes)))
      }
      left = again
      if (left.length > 0 && !(await attempts.pause())) {
        for (const entry of left) outcomes.set(entry, notAssigned(group, entry))
        break
      }
    }
    return list.map((entry) => outcomes.get(entry))
  }

  /** One request. Answers the entries whose member has moved on to another epoch meanwhile: they may still be right. */
  async #commit(
    writing: {
      readonly group: string
      readonly fence: Fence | undefined
      readonly places: ReadonlyMap<Entry, KnownPlace>
      readonly topics: TopicCheck
    },
    entries: readonly Entry[],
    outcomes: Map<Entry, Outcome>,
  ): Promise<Entry[]> {
    const { group, fence, places, topics } = writing
    const list = entries.map((entry) => ({
      ...(places.get(entry) as KnownPlace),
      partition: entry.partition,
      offset: entry.offset,
    }))
    let codes: readonly number[]
    try {
      const send = (): Promise<readonly number[]> => commitOffsets(this.#tools.cluster, { group, fence }, list)
      codes = await this.#attempts(group).run(send)
    } catch (error) {
      for (const entry of entries) outcomes.set(entry, asMillraceError(error))
      return []
    }
    const again: Entry[] = []
    for (const [nth, entry] of entries.entries()) {
      const code = codes[nth] as number
      if (code === errorCode.none) outcomes.set(entry, undefined)
      else if (fence !== undefined && mayHaveMovedOn(code) && fenceOf(group, entry) !== undefined) again.push(entry)
      else if (meansFenced(code)) outcomes.set(entry, notAssigned(group, entry, code))
      else if (meansNoTopic(code)) {
        topics.refresh(entry)
        const found = await topics.look(entry, entry.lineage)
        outcomes.set(entry, found instanceof MillraceError ? found : refused("storing", group, { place: entry, code }))
      } else outcomes.set(entry, refused("storing", group, { place: entry, code }))
    }
    return again
  }

  async #deleteFree(group: string, list: readonly Entry[], outcomes: Outcome[]): Promise<void> {
    const indexes = list.map(({ index }) => index)
    const all: TopicPartition[] = []
    for (const entry of list) all[entry.index] = entry
    const places = await this.#places(all, indexes, outcomes, { fresh: false })
    if (places.length === 0) return
    const codes = await this.#attempts(group).run(() => deleteOffsets(this.#tools.cluster, group, places))
    for (const [nth, place] of places.entries()) {
      const code = codes[nth] as number
      const entry = all[place.index] as Entry
      if (code === errorCode.none || code === errorCode.groupIdNotFound) continue
      outcomes[place.index] =
        code === errorCode.groupSubscribedToTopic || code === errorCode.nonEmptyGroup
          ? notAssigned(group, entry, code)
          : refused("deleting", group, { place: entry, code })
    }
  }

  /** Those of the partitions that are there; the outcome of the others is set. */
  async #places(
    partitions: readonly TopicPartition[],
    indexes: readonly number[],
    outcomes: (Position | undefined | MillraceError)[],
    { fresh }: { readonly fresh: boolean },
  ): Promise<(OffsetPlace & { readonly index: number })[]> {
    const { cluster } = this.#tools
    const topics = new TopicCheck(cluster)
    // Where the coordinator goes by names, only the cluster's own word tells that a topic is gone.
    if (fresh || !cluster.offers(offsetFetchApi, firstVersionWithIds)) {
      for (const topic of distinctTopics(indexes.map((index) => partitions[index] as TopicPartition)))
        topics.refresh(topic)
    }
    const found = await Promise.all(indexes.map((index) => topics.look(partitions[index] as TopicPartition)))
    const places: (OffsetPlace & { readonly index: number })[] = []
    for (const [nth, index] of indexes.entries()) {
      const place = found[nth] as KnownPlace | MillraceError
      if (place instanceof MillraceError) outcomes[index] = place
      else places.push({ ...place, partition: (partitions[index] as TopicPartition).partition, index })
    }
    return places
  }

  /** Behind the group's earlier writes, whatever became of them. */
  #inOrder<T>(group: string, work: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(group) ?? Promise.resolve()
    const done = before.then(() => {
      this.#checkOpen()
      return work()
    })
    const tail = done.then(
      () => {},
      () => {},
    )
    this.#tails.set(group, tail)
    tail.then(() => {
      if (this.#tails.get(group) === tail) this.#tails.delete(group)
    })
    return done
  }

  #attempts(group: string): Attempts {
    return new Attempts(this.#tools, group)
  }

  #checkOpen(): void {
    if (this.#closed) throw new ClosedError("offsets can no longer be stored or loaded: the session is closed")
  }
}

/** One partition of each topic. */
function distinctTopics(places: readonly TopicPartition[]): TopicPartition[] {
  return [...new Map(places.map((place) => [`${place.stream}\u0000${place.topic}`, place])).values()]
}

/** Groups the entries by how they prove themselves. What has a void claim is refused here, without asking. */
function byFence(
  group: string,
  entries: readonly Entry[],
  outcomes: Map<Entry, Outcome>,
): Map<Fence | undefined, Entry[]> {
  const sorted = new Map<Fence | undefined, Entry[]>()
  const fences = new Map<string, Fence>()
  for (const entry of entries) {
    let fence: Fence | undefined
    if (entry.claim !== undefined) {
      const own = fenceOf(group, entry)
      if (own === undefined) {
        outcomes.set(entry, notAssigned(group, entry))
        continue
      }
      const key = `${own.memberId}\u0000${own.generation}`
      fence = fences.get(key) ?? own
      fences.set(key, fence)
    }
    const list = sorted.get(fence)
    if (list === undefined) sorted.set(fence, [entry])
    else list.push(entry)
  }
  return sorted
}

/** `undefined` for a claim of another group or partition, and for one that was released or lost. */
function fenceOf(group: string, { claim, stream, topic, partition, lineage }: Entry): Fence | undefined {
  const token = claim?.token
  if (claim === undefined || !(token instanceof ClaimToken) || token.holder.group !== group) return undefined
  if (claim.stream !== stream || claim.topic !== topic || claim.partition !== partition) return undefined
  if (lineage !== undefined && token.topicId !== lineage) return undefined
  return token.holder.fence(token.number)
}

/** The coordinator knows the member under another epoch or generation than the commit had, or is about to. */
function mayHaveMovedOn(code: number): boolean {
  return (
    code === errorCode.staleMemberEpoch ||
    code === errorCode.illegalGeneration ||
    code === errorCode.rebalanceInProgress
  )
}

function meansFenced(code: number): boolean {
  return (
    mayHaveMovedOn(code) ||
    code === errorCode.unknownMemberId ||
    code === errorCode.fencedInstanceId ||
    code === errorCode.fencedMemberEpoch
  )
}

function notAssigned(group: string, place: TopicPartition, code?: number): NotAssignedError {
  const { stream, topic, partition } = place
  const told =
    code === undefined ? {} : { cause: kafkaError(code, { what: `storing the offset of ${placeText(place)}` }) }
  return new NotAssignedError(
    `the offset of ${placeText(place)} was not stored: the partition does not belong to this member of group ${JSON.stringify(group)}, or not any more`,
    { context: { stream, topic, partition, group }, outcome: "rejected", ...told },
  )
}

function refused(
  doing: "loading" | "storing" | "deleting",
  group: string,
  { place, code }: { readonly place: TopicPartition; readonly code: number },
): MillraceError {
  const { stream, topic, partition } = place
  return kafkaError(code, {
    what: `${doing} the offset of ${placeText(place)} for group ${JSON.stringify(group)}`,
    context: { stream, topic, partition, group },
    readOnly: doing === "loading",
  })
}
