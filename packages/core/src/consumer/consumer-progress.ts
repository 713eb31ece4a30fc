import {
  ClosedError,
  InvalidError,
  type MillraceError,
  NotAssignedError,
  type OffsetOwner,
  type TopicPartition,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import { Checkpoint } from "../record/checkpoint.ts"
import type { Message } from "../record/message.ts"
import { type CommitEvent, CommitPolicyMachine } from "./commit-policy.machine.ts"
import type { Lag, StoredOffset } from "./consumer.ts"
import type { ConsumerSettings } from "./consumer-options.ts"
import type { Lane } from "./lane.ts"
import { OffsetCommitter } from "./offset-committer.ts"
import type { StartPosition } from "./start-position.ts"
import { StoredProgress } from "./stored-progress.ts"

/** How a consumer is named, and what it reads without being given it by a group. */
export interface ConsumerIdentity {
  /** How errors call it: `consumer "x" of topic "s/t"`. */
  readonly what: string
  /** Absent: nothing can be stored. */
  readonly owner: OffsetOwner | undefined
  /** The one partition of a consumer without a group; read from the first call on. */
  readonly partition: TopicPartition | undefined
}

/** The consumer around its progress. */
interface ProgressHost {
  readonly ended: boolean
  readonly lanes: Iterable<Lane>
  lane(place: TopicPartition): Lane | undefined
  /** Writes back how far messages were handed out. */
  settle(): void
  /** Everything before `next` is handled. */
  mark(lane: Lane, next: bigint): void
  seek(lane: Lane, next: bigint): void
  /** A store that nobody waits for failed. */
  failed(error: MillraceError): void
  /** No store is under way any more. */
  idle(): void
}

/** The progress of one consumer: what its policy stores, and what its caller does about it. */
export class ConsumerProgress {
  readonly #identity: ConsumerIdentity
  readonly #host: ProgressHost
  readonly #policy: CommitPolicyMachine<Lane>
  readonly #each: boolean
  readonly #stored: StoredProgress
  readonly #committer: OffsetCommitter | undefined
  #failure: MillraceError | undefined

  constructor(
    context: ClientContext,
    of: { readonly identity: ConsumerIdentity; readonly settings: ConsumerSettings },
    host: ProgressHost,
  ) {
    const { identity, settings } = of
    this.#identity = identity
    this.#host = host
    this.#policy = new CommitPolicyMachine(settings.commitPolicy)
    this.#each = settings.commitPolicy.kind === "each"
    this.#stored = new StoredProgress(context.session, identity)
    if (identity.owner === undefined) return
    const store = { offsets: context.session.offsets, owner: identity.owner }
    this.#committer = new OffsetCommitter(
      store,
      { clock: context.clock, retryMs: settings.retryIntervalMs },
      {
        stored: (lane, next) => {
          lane.storedNext = next
        },
        storeFailed: (lane, error) => {
          this.#failure = error
          this.tell({ type: "storeFailed", key: lane })
          host.failed(error)
        },
        idle: () => host.idle(),
      },
    )
  }

  // ---- what happens to the consumer -----------------------------------------------------------------------

  tell(event: CommitEvent<Lane>): void {
    for (const { key, next } of this.#policy.handle(event)) {
      key.submittedNext = next
      this.#committer?.submit(key, next)
    }
  }

  started(lane: Lane, start: StartPosition): void {
    lane.startNext = start.offset
    lane.storedNext = start.storedNext
    lane.submittedNext = start.storedNext
    this.tell({ type: "gained", key: lane, stored: start.storedNext })
  }

  /** Begins anew: what was stored says nothing about what is read from here on. */
  restarted(lane: Lane): void {
    lane.handedNext = undefined
    lane.handedOffset = undefined
    lane.storedNext = undefined
    lane.submittedNext = undefined
    this.tell({ type: "gained", key: lane, stored: undefined })
  }

  /** The history is over: what waits to be stored of it is refused. */
  sourceChanged(lane: Lane): void {
    const error = this.#stored.historyChanged(lane.partition, lane.handedOffset)
    this.restarted(lane)
    this.#committer?.drop(lane, error)
  }

  /** The partition is another member's: what waits to be stored of it is refused. */
  dropped(lane: Lane): void {
    this.tell({ type: "dropped", key: lane })
    this.#committer?.drop(lane, this.#stored.notAssigned(lane.partition, lane.handedOffset))
  }

  /** Whether a store must come before the next message is handed out. */
  get held(): boolean {
    return this.#each && this.#committer?.busy === true
  }

  /** Settles when no store is under way or waiting. */
  settled(): Promise<void> {
    return this.#committer?.settled() ?? Promise.resolve()
  }

  /** Commands the last stores. @returns what fails of those that nobody waits for, once `settled` has settled */
  end(): () => MillraceError | undefined {
    this.#failure = undefined
    this.tell({ type: "shutdown" })
    return () => {
      this.#committer?.abandon(new ClosedError(`${this.#identity.what} was shut down`))
      return this.#failure
    }
  }

  // ---- what the caller does -------------------------------------------------------------------------------

  async commit(what?: Message | Checkpoint): Promise<void> {
    const committer = this.#storing("commit")
    this.#host.settle()
    if (what === undefined) {
      const lanes = [...this.#host.lanes].filter((lane) => lane.handedNext !== undefined)
      await Promise.all(lanes.map((lane) => this.#commitThrough(committer, lane, lane.handedNext as bigint)))
      return
    }
    const checkpoint = what instanceof Checkpoint ? what : what.checkpoint()
    const lane = this.#host.lane(checkpoint)
    if (lane === undefined || lane.machine.starting) return this.#stored.storeUnread(checkpoint, lane)
    if (lane.claim !== checkpoint.claim) throw this.#stored.notAssigned(checkpoint, checkpoint.offset)
    if (lane.machine.lineage !== checkpoint.lineage) throw this.#stored.historyChanged(checkpoint, checkpoint.offset)
    // Behind the last message handed out, progress includes holes and markers, so that the lag comes to 0.
    const behind = lane.handedOffset === checkpoint.offset ? lane.handedNext : undefined
    await this.#commitThrough(committer, lane, behind ?? checkpoint.offset + 1n)
  }

  async storeOffset(offset: bigint, partition?: number, options?: { readonly resetPosition?: boolean }): Promise<void> {
    const committer = this.#storing("storeOffset")
    const next = this.#stored.checkOffset(offset) + 1n
    const place = this.#place(partition)
    const lane = this.#host.lane(place)
    if (lane === undefined || lane.machine.starting) await this.#stored.storeNext(place, next, lane?.claim)
    else {
      await committer.commit(lane, next)
      lane.submittedNext = next
      this.tell({ type: "submitted", key: lane, next })
    }
    if (options?.resetPosition === true && lane?.live === true) this.#host.seek(lane, next)
  }

  async deleteOffset(partition?: number): Promise<void> {
    const committer = this.#storing("deleteOffset")
    const place = this.#place(partition)
    const lane = this.#host.lane(place)
    if (lane === undefined) return this.#stored.forget(place)
    await committer.commit(lane, undefined)
    lane.submittedNext = undefined
    this.tell({ type: "submitted", key: lane, next: undefined })
  }

  async storedOffset(partition?: number): Promise<StoredOffset | undefined> {
    const committer = this.#storing("storedOffset")
    const place = this.#place(partition)
    await committer.settled()
    return this.#stored.stored(place)
  }

  lastConsumedOffset(partition?: number): bigint | undefined {
    this.#host.settle()
    return this.#known(partition)?.handedOffset
  }

  lastStoredOffset(partition?: number): bigint | undefined {
    const next = this.#known(partition)?.storedNext
    return next === undefined || next === 0n ? undefined : next - 1n
  }

  async lag(): Promise<Lag[]> {
    this.#refuseClosed("lag")
    this.#host.settle()
    await this.#committer?.settled()
    const lanes = [...this.#host.lanes]
    const { partition } = this.#identity
    const places = lanes.length === 0 && partition !== undefined ? [partition] : lanes.map((lane) => lane.partition)
    return this.#stored.lag(places, (place) => {
      const lane = this.#host.lane(place)
      return lane?.handedNext ?? lane?.startNext
    })
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  /** Never back: what was given to the store before covers an older message too. */
  async #commitThrough(committer: OffsetCommitter, lane: Lane, next: bigint): Promise<void> {
    const submitted = lane.submittedNext
    const target = submitted !== undefined && submitted > next ? submitted : next
    lane.submittedNext = target
    this.tell({ type: "submitted", key: lane, next: target })
    this.#host.mark(lane, target)
    if (lane.storedNext !== undefined && lane.storedNext >= target && !committer.busy) return
    try {
      await committer.commit(lane, target)
    } catch (error) {
      // It is handled all the same: the policy stores it when it can.
      this.tell({ type: "storeFailed", key: lane })
      throw error
    }
  }

  #storing(call: string): OffsetCommitter {
    this.#refuseClosed(call)
    if (this.#committer !== undefined) return this.#committer
    throw new InvalidError(
      `${this.#identity.what}: ${call} needs a consumer name to store offsets under; this consumer was opened without one`,
    )
  }

  #refuseClosed(call: string): void {
    if (!this.#host.ended) return
    throw new ClosedError(`${this.#identity.what} was shut down: ${call} is not possible any more`)
  }

  /** The partition that a number names, among those that are read. */
  #place(partition: number | undefined): TopicPartition {
    const { what, partition: fixed } = this.#identity
    if (fixed !== undefined) {
      if (partition === undefined || partition === fixed.partition) return fixed
      throw new InvalidError(`${what} reads partition ${fixed.partition}, not ${shown(partition)}`)
    }
    if (partition === undefined) {
      throw new InvalidError(`${what} may read several partitions: name the one that is meant`)
    }
    const [lane, ...more] = [...this.#host.lanes].filter((one) => one.partition.partition === partition)
    if (lane === undefined) {
      throw new NotAssignedError(`${what}: partition ${shown(partition)} is not assigned to this member`)
    }
    if (more.length === 0) return lane.partition
    const topics = [lane, ...more].map((one) => `"${topicText(one.partition)}"`).join(", ")
    throw new InvalidError(
      `${what}: partition ${partition} is read of several topics (${topics}); commit a message instead`,
    )
  }

  /** For diagnostics: unknown partitions are simply not known. */
  #known(partition: number | undefined): Lane | undefined {
    const wanted = partition ?? this.#identity.partition?.partition
    for (const lane of this.#host.lanes) if (lane.partition.partition === wanted) return lane
    return undefined
  }
}
