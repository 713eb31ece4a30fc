import {
  ClosedError,
  HistoryChangedError,
  InvalidError,
  NotAssignedError,
  type OffsetEntry,
  type OffsetOwner,
  type Session,
  type TopicPartition,
} from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import type { Lag, StoredOffset } from "../consumer/consumer.ts"
import { ambiguous, isMeant, notRead, type PartitionRef } from "../consumer/partition-ref.ts"
import { type Lane, laneKey } from "../partition/lane.ts"
import { Checkpoint } from "../record/checkpoint.ts"
import type { Message } from "../record/message.ts"
import type { ConsumerIdentity, ConsumerProgress } from "./consumer-progress.ts"
import type { OffsetCommitter } from "./offset-committer.ts"
import type { ReadGate } from "./read-gate.ts"
import type { ReadOperation } from "./read-operation.ts"
import { StoredProgress } from "./stored-progress.ts"
import type { TransactedOffsets } from "./transacted-offsets.ts"

/** The consumer whose offsets are controlled. */
interface OffsetHost {
  readonly ended: boolean
  /** Begins to read, unless that has begun. */
  start(): void
  readonly lanes: Iterable<Lane>
  lane(place: TopicPartition): Lane | undefined
  /** Writes back how far messages were handed out. */
  settle(): void
  /** Everything before `next` is handled. */
  mark(lane: Lane, next: bigint): void
  /** One message is handled. */
  markOne(lane: Lane, offset: bigint): void
  seek(lane: Lane, next: bigint): void
}

const resolveTimeoutMs = 5000

/** What the caller does about a consumer's offsets: the calls of `Consumer` that have to do with progress, where they are described. */
export class OffsetControl {
  readonly #identity: ConsumerIdentity
  readonly #host: OffsetHost
  readonly #progress: ConsumerProgress
  readonly #stored: StoredProgress

  constructor(
    session: Session,
    of: { readonly identity: ConsumerIdentity; readonly progress: ConsumerProgress },
    host: OffsetHost,
  ) {
    this.#identity = of.identity
    this.#progress = of.progress
    this.#stored = new StoredProgress(session, of.identity)
    this.#host = host
  }

  async commit(what?: Message | Checkpoint): Promise<void> {
    const committer = this.#acknowledging("commit")
    this.#host.settle()
    if (what === undefined) {
      const lanes = [...this.#host.lanes].filter((lane) => lane.handedNext !== undefined)
      await Promise.all(lanes.map((lane) => this.#commitThrough(committer, lane, lane.handedNext as bigint)))
      return
    }
    const checkpoint = this.#checkpointOf(what, "commit")
    const lane = this.#laneOf(checkpoint)
    if (lane === undefined) return this.#stored.storeUnread(checkpoint, this.#host.lane(checkpoint))
    // Behind the last message handed out, progress includes holes and markers, so that the lag comes to 0.
    const behind = lane.handedOffset === checkpoint.offset ? lane.handedNext : undefined
    try {
      await this.#commitThrough(committer, lane, behind ?? checkpoint.offset + 1n)
    } catch (error) {
      throw this.#refused(checkpoint, error)
    }
  }

  mark(what: Message | Checkpoint): void {
    this.#acknowledging("mark")
    this.#host.settle()
    const checkpoint = this.#checkpointOf(what, "mark")
    const lane = this.#laneOf(checkpoint)
    if (lane === undefined) this.#stored.checkPlace(checkpoint, this.#host.lane(checkpoint))
    const { handedOffset } = lane ?? {}
    if (lane === undefined || handedOffset === undefined || checkpoint.offset > handedOffset) {
      throw new InvalidError(
        `${this.#identity.what}: offset ${checkpoint.offset} of partition ${checkpoint.partition} was not handed out since reading began; mark takes what was`,
      )
    }
    this.#progress.tell({ type: "marked", key: lane })
    this.#host.markOne(lane, checkpoint.offset)
  }

  /**
   * Progress behind these messages, for a transaction to store.
   * @throws InvalidError for a consumer without a name, or one whose policy stores more than it is told to; as `commit` for each message
   */
  transact(what: readonly (Message | Checkpoint)[]): TransactedOffsets {
    this.#acknowledging("sendOffsets")
    this.#refuseSelfStoring()
    this.#host.settle()
    const latest = new Map<string, Checkpoint>()
    for (const one of what) {
      const checkpoint = this.#checkpointOf(one, "sendOffsets")
      const key = laneKey(checkpoint)
      const known = latest.get(key)
      if (known === undefined || known.offset < checkpoint.offset) latest.set(key, checkpoint)
    }
    const places = [...latest.values()].map((checkpoint) => {
      const lane = this.#laneOf(checkpoint)
      if (lane === undefined) this.#stored.checkPlace(checkpoint, this.#host.lane(checkpoint))
      const behind = lane?.handedOffset === checkpoint.offset ? lane.handedNext : undefined
      return { lane, checkpoint, next: behind ?? checkpoint.offset + 1n }
    })
    return {
      owner: this.#identity.owner as OffsetOwner,
      entries: places.map(({ checkpoint, next }) => entryOf(checkpoint, next)),
      ready: () => this.#progress.leaveToTransaction(places.flatMap(({ lane }) => lane ?? [])),
      isOurs: (index) => {
        const { lane, checkpoint } = places[index] as (typeof places)[number]
        return lane !== undefined && isSame(lane, checkpoint)
      },
      committed: () => {
        for (const { lane, checkpoint, next } of places)
          if (lane !== undefined) this.#transacted(lane, checkpoint, next)
      },
    }
  }

  /** The same for everything that was handed out of these partitions, but for what lies behind a limit. */
  transactHanded(lanes: Iterable<Lane>, limitOf: (lane: Lane) => bigint | undefined): TransactedOffsets {
    this.#host.settle()
    const places = [...lanes].map((lane) => {
      const { stream, topic, partition } = lane.partition
      const { lineage } = lane.machine
      const next = limitOf(lane) ?? (lane.handedNext as bigint)
      return { lane, next, place: { stream, topic, partition, lineage, claim: lane.claim } }
    })
    return {
      owner: this.#identity.owner as OffsetOwner,
      entries: places.map(({ place, next }) => entryOf(place, next)),
      ready: () => this.#progress.leaveToTransaction(places.map(({ lane }) => lane)),
      isOurs: (index) => {
        const { lane, place } = places[index] as (typeof places)[number]
        return isSame(lane, place)
      },
      committed: () => {
        for (const { lane, place, next } of places) this.#transacted(lane, place, next)
      },
    }
  }

  async resolve(operation: ReadOperation, options?: { readonly timeoutMs?: number }): Promise<boolean> {
    const gate = this.#gated("resolve")
    const reader = new OptionReader(`${this.#identity.what}: resolve`, options, ["timeoutMs"])
    return gate.resolve(operation, reader.duration("timeoutMs", { fallback: resolveTimeoutMs }))
  }

  abandon(operation: ReadOperation): void {
    this.#gated("abandon").abandon(operation)
  }

  async storeOffset(
    offset: bigint,
    partition?: PartitionRef,
    options?: { readonly resetPosition?: boolean },
  ): Promise<void> {
    this.#storing("storeOffset")
    const next = this.#stored.checkOffset(offset) + 1n
    const place = this.#place(partition)
    const resets = new OptionReader(`${this.#identity.what}: storeOffset`, options, ["resetPosition"]).flag(
      "resetPosition",
      false,
    )
    if (resets) this.#host.start()
    this.#host.settle()
    const lane = this.#host.lane(place)
    const gate = resets ? this.#progress.gate : undefined
    if (lane === undefined || lane.machine.starting) await this.#stored.storeNext(place, next, lane?.claim)
    else {
      gate?.refuseUncertain(lane)
      const store = (): Promise<void> => this.#progress.place(lane, next)
      await (gate === undefined ? store() : gate.halted(lane, store))
    }
    if (resets && lane?.live === true) this.#host.seek(lane, next)
  }

  async deleteOffset(partition?: PartitionRef): Promise<void> {
    this.#storing("deleteOffset")
    const place = this.#place(partition)
    const lane = this.#host.lane(place)
    if (lane === undefined) return this.#stored.forget(place)
    this.#host.settle()
    await this.#progress.place(lane, undefined)
  }

  async storedOffset(partition?: PartitionRef): Promise<StoredOffset | undefined> {
    const committer = this.#storing("storedOffset")
    const place = this.#place(partition)
    await committer.tried()
    return this.#stored.stored(place)
  }

  lastConsumedOffset(partition?: PartitionRef): bigint | undefined {
    this.#host.settle()
    return this.#known(partition)?.handedOffset
  }

  lastStoredOffset(partition?: PartitionRef): bigint | undefined {
    const next = this.#known(partition)?.storedNext
    return next === undefined || next === 0n ? undefined : next - 1n
  }

  async lag(): Promise<Lag[]> {
    this.#refuseClosed("lag")
    this.#host.settle()
    await this.#progress.committer?.tried()
    const lanes = [...this.#host.lanes]
    const { partition } = this.#identity
    const places = lanes.length === 0 && partition !== undefined ? [partition] : lanes.map((lane) => lane.partition)
    return this.#stored.lag(places, (place) => {
      const lane = this.#host.lane(place)
      return lane?.handedNext ?? lane?.startNext
    })
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  /** A transaction has stored `next`. What happened to the partition meanwhile counts for more. */
  #transacted(lane: Lane, place: Pick<Checkpoint, "lineage" | "claim">, next: bigint): void {
    if (!isSame(lane, place)) return
    lane.submittedNext = next
    lane.storedNext = next
    this.#progress.tell({ type: "submitted", key: lane, next })
    this.#host.mark(lane, next)
  }

  #refuseSelfStoring(): void {
    if (this.#progress.isToldOnly) return
    throw new InvalidError(
      `${this.#identity.what}: its commitPolicy stores by itself what a transaction may then abort; with sendOffsets give it commitPolicy { kind: "disabled" }`,
    )
  }

  /** Never back: what was given to the store before covers an older message too. */
  async #commitThrough(committer: OffsetCommitter, lane: Lane, next: bigint): Promise<void> {
    const through = later(lane.submittedNext, next)
    lane.submittedNext = through
    this.#progress.tell({ type: "submitted", key: lane, next: through })
    // In a replay the store is ahead; what is handled is not.
    this.#host.mark(lane, next)
    // What was marked behind it may have joined it.
    const target = later(lane.submittedNext, through)
    if (lane.storedNext !== undefined && lane.storedNext >= target && !committer.busy) return
    try {
      await committer.commit(lane, target)
    } catch (error) {
      // It is handled all the same: the policy stores it when it can.
      this.#progress.tell({ type: "storeFailed", key: lane })
      throw error
    }
  }

  /**
   * The partition that a checkpoint is of, while it is being read.
   * @throws NotAssignedError when it was read under another claim, HistoryChangedError when it is of another history
   */
  #laneOf(checkpoint: Checkpoint): Lane | undefined {
    const lane = this.#host.lane(checkpoint)
    if (lane === undefined || lane.machine.starting) return undefined
    if (lane.claim !== checkpoint.claim) throw this.#stored.wrongClaim(checkpoint)
    if (lane.machine.lineage !== checkpoint.lineage) throw this.#stored.historyChanged(checkpoint, checkpoint.offset)
    return lane
  }

  /** What the backend refuses is told of the message that was to be committed, not of the offset behind it. */
  #refused(checkpoint: Checkpoint, error: unknown): unknown {
    if (error instanceof HistoryChangedError) return this.#stored.historyChanged(checkpoint, checkpoint.offset, error)
    if (error instanceof NotAssignedError) return this.#stored.notAssigned(checkpoint, checkpoint.offset, error)
    return error
  }

  /** @throws InvalidError for what is neither, which only a caller without types can give */
  #checkpointOf(what: Message | Checkpoint, call: string): Checkpoint {
    if (what instanceof Checkpoint) return what
    if (typeof (what as Partial<Message> | null | undefined)?.checkpoint === "function") return what.checkpoint()
    throw new InvalidError(`${this.#identity.what}: ${call} takes messages and checkpoints, not ${shown(what)}`)
  }

  #acknowledging(call: string): OffsetCommitter {
    const committer = this.#storing(call)
    if (this.#progress.gate === undefined) return committer
    throw new InvalidError(
      `${this.#identity.what}: ${call} is not possible with the commit policy "onRead", under which everything is stored before it is handed out; use another policy, or storeOffset`,
    )
  }

  #gated(call: string): ReadGate {
    this.#refuseClosed(call)
    if (this.#progress.gate !== undefined) return this.#progress.gate
    throw new InvalidError(
      `${this.#identity.what}: ${call} is for the commit policy "onRead", which this consumer has not`,
    )
  }

  #storing(call: string): OffsetCommitter {
    this.#refuseClosed(call)
    if (this.#progress.committer !== undefined) return this.#progress.committer
    throw new InvalidError(
      `${this.#identity.what}: ${call} needs a consumer name to store offsets under; this consumer was opened without one`,
    )
  }

  #refuseClosed(call: string): void {
    if (!this.#host.ended) return
    throw new ClosedError(`${this.#identity.what} was shut down: ${call} is not possible any more`)
  }

  /** The partition that a number names, among those that are read. */
  #place(partition: PartitionRef | undefined): TopicPartition {
    const { what, partition: fixed } = this.#identity
    if (fixed !== undefined) {
      if (partition === undefined || isMeant(partition, fixed)) return fixed
      throw notRead(this.#identity, partition)
    }
    if (partition === undefined) {
      throw new InvalidError(`${what} may read several partitions: name the one that is meant`)
    }
    const [lane, ...more] = [...this.#host.lanes].filter((one) => isMeant(partition, one.partition))
    if (lane === undefined) throw notRead(this.#identity, partition)
    if (more.length === 0) return lane.partition
    throw ambiguous(
      what,
      partition,
      [lane, ...more].map((one) => one.partition),
    )
  }

  /** For diagnostics: unknown partitions are simply not known. */
  #known(partition: PartitionRef | undefined): Lane | undefined {
    const wanted = partition ?? this.#identity.partition
    if (wanted === undefined) return undefined
    return [...this.#host.lanes].find((lane) => isMeant(wanted, lane.partition))
  }
}

function later(submitted: bigint | undefined, next: bigint): bigint {
  return submitted !== undefined && submitted > next ? submitted : next
}

function isSame(lane: Lane, { lineage, claim }: Pick<Checkpoint, "lineage" | "claim">): boolean {
  return lane.live && lane.claim === claim && lane.machine.lineage === lineage
}

function entryOf(place: Omit<Checkpoint, "offset">, next: bigint): OffsetEntry {
  const { stream, topic, partition, lineage, claim } = place
  const entry = { stream, topic, partition, lineage, offset: next }
  return claim === undefined ? entry : { ...entry, claim }
}
