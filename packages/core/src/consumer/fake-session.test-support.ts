/** A session over `FakeLog`: offsets, and a group whose assignments the test decides. */
import {
  AlreadyExistsError,
  type AssignmentChange,
  absentQueues,
  absentState,
  absentTransactions,
  type Catalog,
  type Claim,
  type GroupCoordinator,
  type JoinOptions,
  type Manifest,
  type Membership,
  type MillraceError,
  NotAssignedError,
  NotFoundError,
  type OffsetEntry,
  type OffsetOwner,
  type OffsetStore,
  type Position,
  type Session,
  type TopicDescription,
  type TopicName,
  type TopicPartition,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { ConnectionWatch } from "../client/connection-watch.ts"
import type { ClientContext, Owned } from "../client/context.ts"
import { CachedTopicDirectory } from "../client/topic-directory.ts"
import { FilterLog } from "../filter/filter-log.ts"
import { FilterWatch } from "../filter/filter-watch.ts"
import { ProducerRegistry } from "../observe/producer-registry.ts"
import { laneKey } from "../partition/lane.ts"
import type { Message } from "../record/message.ts"
import type { Consumer } from "./consumer.ts"
import { FakeLog } from "./fake-log.test-support.ts"

const absent = { supported: false, reason: "it is a fake", instead: "Use a real one." } as const

export const fakeManifest: Manifest = {
  backend: "fake log",
  append: {
    dedup: "none",
    inFlight: { offsets: 1, stored: 1 },
    duplicates: "counted",
    identityScope: "none",
    idLookup: "none",
    durability: ["synced"],
    compression: ["none"],
  },
  read: { holes: true, timestampResolutionMicros: 1, originTimestamp: "always", ids: "all", filters: "client" },
  catalog: {
    streams: "objects",
    groups: "objects",
    purge: "restarts",
    expiry: absent,
    sizeRetention: absent,
    addPartitions: absent,
    trim: { supported: true },
  },
  offsets: { durability: ["synced"], range: "any" },
  groups: { supported: true },
  staticMembers: { supported: true },
  queues: absent,
  transactions: absent,
  state: absent,
  limits: {
    payloadBytes: 1e6,
    headersBytes: 1e5,
    headerNameBytes: 255,
    headerValueBytes: 1e5,
    keyBytes: 65_535,
    nameBytes: 255,
    partitions: 1000,
    batchBytes: 1e6,
    batchRecords: 1e6,
  },
}

/** Stored offsets, with a log of what was stored and failures to inject. */
class FakeOffsets implements OffsetStore {
  readonly stored: Map<string, Position> = new Map()
  /** Every entry that was stored, in order. */
  readonly history: OffsetEntry[] = []
  readonly failures: MillraceError[] = []
  /** Answered by stores that have happened: what got lost is the answer. */
  readonly lostAnswers: MillraceError[] = []
  /** Claims that are void. */
  readonly void: Set<unknown> = new Set()
  /** Holds answers back while set. */
  gate: Promise<void> | undefined
  beforeLoad: () => Promise<void> = async () => {}
  readonly #log: FakeLog

  constructor(log: FakeLog) {
    this.#log = log
  }

  async load(owner: OffsetOwner, places: readonly TopicPartition[]): Promise<(Position | undefined)[]> {
    await this.beforeLoad()
    return places.map((place) => {
      const position = this.stored.get(keyOf(owner, place))
      return position?.lineage === this.#log.find(place)?.lineage ? position : undefined
    })
  }

  async store(owner: OffsetOwner, entries: readonly OffsetEntry[]): Promise<(MillraceError | undefined)[]> {
    await this.gate
    const failure = this.failures.shift()
    if (failure !== undefined) return entries.map(() => failure)
    const lost = this.lostAnswers.shift()
    return entries.map((entry) => {
      if (entry.claim !== undefined && this.void.has(entry.claim.token))
        return new NotAssignedError("the claim is void")
      this.history.push(entry)
      this.stored.set(keyOf(owner, entry), entry)
      return lost
    })
  }

  async delete(owner: OffsetOwner, entries: readonly TopicPartition[]): Promise<undefined[]> {
    for (const entry of entries) this.stored.delete(keyOf(owner, entry))
    return entries.map(() => undefined)
  }
}

/** One member of one group, whose assignments the test gives. */
class FakeMembership implements Membership {
  readonly memberId = "member"
  readonly released: Claim[] = []
  left = false
  readonly #queue: (AssignmentChange | Error | "end")[] = []
  #wake: (() => void) | undefined

  readonly changes: AsyncIterable<AssignmentChange> = {
    [Symbol.asyncIterator]: () => ({
      next: async () => {
        while (this.#queue.length === 0) await new Promise<void>((resolve) => (this.#wake = resolve))
        const change = this.#queue.shift()
        if (change instanceof Error) throw change
        return change === "end" || change === undefined
          ? { done: true as const, value: undefined }
          : { done: false as const, value: change }
      },
    }),
  }

  tell(change: Partial<AssignmentChange> | Error): void {
    this.#push(
      change instanceof Error ? change : { assigned: [], revoked: [], lost: [], deadlineMs: 10_000, ...change },
    )
  }

  async release(claims: readonly Claim[]): Promise<void> {
    this.released.push(...claims)
  }

  async leave(): Promise<void> {
    this.left = true
    this.#push("end")
  }

  #push(change: AssignmentChange | Error | "end"): void {
    this.#queue.push(change)
    this.#wake?.()
  }
}

class FakeGroups implements GroupCoordinator {
  readonly created: Set<string> = new Set()
  readonly joins: { group: string; topics: readonly TopicName[]; options: JoinOptions }[] = []
  /** The latest membership, or until the first join the one that it will give. */
  membership: FakeMembership = new FakeMembership()
  /** Each join takes one of these failures, if there is one. */
  readonly failures: MillraceError[] = []

  async create(group: string): Promise<void> {
    if (this.created.has(group)) throw new AlreadyExistsError(`group "${group}" exists`)
    this.created.add(group)
  }
  async join(group: string, topics: readonly TopicName[], options: JoinOptions): Promise<Membership> {
    const failure = this.failures.shift()
    if (failure !== undefined) throw failure
    if (!this.created.has(group)) throw new NotFoundError(`group "${group}" does not exist`)
    if (this.joins.length > 0) this.membership = new FakeMembership()
    this.joins.push({ group, topics, options })
    return this.membership
  }
  describe(): never {
    throw new Error("not part of these tests")
  }
  delete(): never {
    throw new Error("not part of these tests")
  }
}

/** Everything a test needs: a virtual clock, one topic `s/t` with as many partitions as it asks for, and a context for the consumers. */
export class FakeClient {
  readonly clock: VirtualClock = new VirtualClock()
  readonly connection: ConnectionWatch = new ConnectionWatch()
  readonly log: FakeLog = new FakeLog(this.clock)
  readonly offsets: FakeOffsets = new FakeOffsets(this.log)
  readonly groups: FakeGroups = new FakeGroups()
  readonly topic: TopicName = { stream: "s", topic: "t" }
  readonly owned: Set<Owned> = new Set()
  readonly context: ClientContext
  partitions: number

  constructor(options: { readonly partitions?: number; readonly manifest?: Manifest } = {}) {
    this.partitions = options.partitions ?? 1
    for (let partition = 0; partition < this.partitions; partition++) this.log.add(this.place(partition))
    const manifest = options.manifest ?? fakeManifest
    const catalog = { describeTopic: async (name: TopicName) => this.#describe(name) } as unknown as Catalog
    const session: Session = {
      manifest,
      catalog,
      log: this.log,
      offsets: this.offsets,
      groups: this.groups,
      queues: absentQueues("fake log", absent),
      transactions: absentTransactions("fake log", absent),
      state: absentState("fake log", absent),
      native: undefined,
      close: async () => {},
    }
    const random = seededRandom(1)
    this.context = {
      session,
      clock: this.clock,
      random,
      filters: new FilterWatch(new FilterLog({ session, clock: this.clock, random }), this.clock),
      connection: this.connection,
      publish: { timeoutMs: 1000, retries: 0, retryBackoffMs: 1 },
      topics: new CachedTopicDirectory(catalog),
      producers: new ProducerRegistry(this.clock, seededRandom(2)),
      own: (owned) => {
        this.owned.add(owned)
        return () => void this.owned.delete(owned)
      },
    }
  }

  place(partition = 0): TopicPartition {
    return { ...this.topic, partition }
  }

  claim(partition: number, token: unknown = { of: partition }): Claim {
    return { ...this.place(partition), token }
  }

  /** Appends records whose payloads are the numbers from `from` to `to` − 1, in one batch. */
  put(from: number, to: number, partition = 0): void {
    const records = []
    for (let n = from; n < to; n++) records.push({ payload: new TextEncoder().encode(String(n)) })
    this.log.put(this.place(partition), records)
  }

  /** The stored *next* offset of a named consumer. */
  storedNext(name: string, partition = 0): bigint | undefined {
    return this.offsets.stored.get(keyOf({ kind: "consumer", name }, this.place(partition)))?.offset
  }

  /** The stored *next* offset of a group. */
  groupNext(name: string, partition = 0): bigint | undefined {
    return this.offsets.stored.get(keyOf({ kind: "group", name }, this.place(partition)))?.offset
  }

  /** Stores the *next* offset of a consumer, as an earlier run would have. */
  storeNext(owner: OffsetOwner, next: bigint, partition = 0): void {
    const lineage = this.log.find(this.place(partition))?.lineage ?? ""
    this.offsets.stored.set(keyOf(owner, this.place(partition)), { ...this.place(partition), offset: next, lineage })
  }

  /** Lets everything that is ready happen, without moving the clock. */
  settle(): Promise<void> {
    return this.clock.advance(0)
  }

  #describe(name: TopicName): TopicDescription {
    if (this.log.find({ ...name, partition: 0 }) === undefined) {
      throw new NotFoundError(`topic "${name.stream}/${name.topic}" does not exist`)
    }
    return {
      ...name,
      partitions: Array.from({ length: this.partitions }, (_, partition) => ({ partition })),
      lineage: "a",
      createdMicros: 0n,
      durability: "synced",
      offsetDurability: "synced",
      deduplicationWindowMs: 0,
      deduplicateIds: false,
    }
  }
}

/** Reads so many messages, and leaves the last one open. Each call fails after a second of virtual time. */
export async function take(consumer: Consumer, count: number): Promise<Message[]> {
  const messages: Message[] = []
  while (messages.length < count) messages.push(await consumer.nextWithin(1000))
  return messages
}

/** The payload as text. */
export function textOf(message: Message): string {
  return new TextDecoder().decode(message.payload as Uint8Array)
}

export function textsOf(messages: readonly Message[]): string[] {
  return messages.map(textOf)
}

function keyOf(owner: OffsetOwner, place: TopicPartition): string {
  return `${owner.kind}\n${owner.name}\n${laneKey(place)}`
}
