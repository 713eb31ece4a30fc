import {
  ClosedError,
  type MillraceError,
  NotFoundError,
  type OffsetOwner,
  type TopicPartition,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import type { ConsumerSettings } from "../consumer/consumer-options.ts"
import type { Lane } from "../partition/lane.ts"
import type { RecordSource } from "../partition/record-source.ts"
import type { StartPosition } from "../partition/start-position.ts"
import { type CommitEvent, CommitPolicyMachine } from "./commit-policy.machine.ts"
import { acknowledgementOf, momentsOf } from "./commit-policy.ts"
import { CommitTimer } from "./commit-timer.ts"
import { OffsetCommitter, quietMs } from "./offset-committer.ts"
import { ReadGate } from "./read-gate.ts"
import { StoredProgress } from "./stored-progress.ts"

/** Progress over holes and filtered records is stored at the latest so long after they were read, in ms. */
const scannedMs = 1000

/** How a consumer is named, and what it reads without being given it by a group. */
export interface ConsumerIdentity {
  /** How errors call it: `consumer "x" of topic "s/t"`. */
  readonly what: string
  /** Absent: nothing can be stored. */
  readonly owner: OffsetOwner | undefined
  /** The one partition of a consumer without a group; read from the first call on. */
  readonly partition: TopicPartition | undefined
  /** Absent: everything that the log holds. */
  readonly records?: RecordSource
}

/** The consumer around its progress. */
interface ProgressHost {
  readonly lanes: Iterable<Lane>
  /** Writes back how far messages were handed out. */
  settle(): void
  /** The partition has something to hand out. */
  offer(lane: Lane): void
  /** The partition's history may be over: the reader is to look. */
  doubted(lane: Lane): void
  /** A store that nobody waits for failed. */
  failed(error: MillraceError): void
  /** No store is under way any more. */
  idle(): void
}

/** The progress of one consumer: what its policy makes of what happens. What its caller does about it is `OffsetControl`. */
export class ConsumerProgress {
  readonly #identity: ConsumerIdentity
  readonly #host: ProgressHost
  readonly #policy: CommitPolicyMachine<Lane>
  readonly #each: boolean
  /** Whether the policy stores nothing but what the caller says is handled. */
  readonly isToldOnly: boolean
  readonly #stored: StoredProgress
  /** Absent without a name to store under. */
  readonly committer: OffsetCommitter | undefined
  readonly #timer: CommitTimer | undefined
  /** With the policy `onRead`. */
  readonly gate: ReadGate | undefined
  /** Partitions whose progress moved over what has no message, and when it is stored where nothing else makes it stored. */
  readonly #scanned = new Set<Lane>()
  #scanTimer: CommitTimer | undefined
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
    const { each, intervalMs, manual, onRead } = momentsOf(settings.commitPolicy)
    this.#each = each
    this.isToldOnly = acknowledgementOf(settings.commitPolicy).counts === "marks"
    this.#stored = new StoredProgress(context.session, identity)
    if (identity.owner === undefined) return
    const store = { offsets: context.session.offsets, owner: identity.owner }
    this.committer = new OffsetCommitter(
      store,
      { clock: context.clock, retryMs: settings.retryIntervalMs },
      {
        stored: (lane, next) => {
          lane.storedNext = next
        },
        storeFailed: (lane, error) => {
          this.tell({ type: "storeFailed", key: lane })
          // Who waits for a topic that is gone is not told that the progress in it is gone too.
          if (settings.onMissing === "wait" && error instanceof NotFoundError) return
          this.#failure = error
          host.failed(error)
        },
        idle: () => host.idle(),
      },
    )
    if (intervalMs !== undefined) this.#timer = new CommitTimer(context.clock, intervalMs, () => this.#tick())
    else if (!manual) this.#scanTimer = new CommitTimer(context.clock, scannedMs, () => this.#storeScanned())
    if (onRead) {
      const gated = { ...store, what: identity.what, clock: context.clock, retryMs: settings.retryIntervalMs, quietMs }
      this.gate = new ReadGate(gated, this.committer, {
        offer: (lane) => {
          host.offer(lane)
          host.idle()
        },
        doubted: (lane) => host.doubted(lane),
        failed: (error) => host.failed(error),
      })
    }
  }

  // ---- what happens to the consumer -----------------------------------------------------------------------

  /** Stores what the policy says to store now. @returns whether that is anything */
  tell(event: CommitEvent<Lane>): boolean {
    const commands = this.#policy.handle(event)
    for (const { key, next } of commands) {
      key.submittedNext = next
      this.committer?.submit(key, next)
    }
    if (this.#timer !== undefined && this.#policy.waiting) this.#timer.start()
    return commands.length > 0
  }

  /** Something was read of the partition. */
  offered(lane: Lane): void {
    this.#timer?.start()
    const next = this.gate === undefined ? undefined : lane.stagedNext
    if (next !== undefined) this.gate?.staged(lane, next)
  }

  /** Progress behind everything that was read of the partition is `next`. */
  advanced(lane: Lane, next: bigint): void {
    this.gate?.staged(lane, lane.stagedNext ?? next)
    if (this.#scanTimer === undefined) return
    this.#scanned.add(lane)
    this.#scanTimer.start()
  }

  /** An error of the partition was handed out. @returns whether it was about storing, not about reading */
  errorTaken(lane: Lane, error: MillraceError): boolean {
    return this.gate?.errorTaken(lane, error) ?? false
  }

  /** What was read ahead of the partition was thrown away, and reading goes on elsewhere. */
  moved(lane: Lane): void {
    this.gate?.reset(lane)
    this.tell({ type: "moved", key: lane })
  }

  started(lane: Lane, start: StartPosition): void {
    lane.history = lane.machine.lineage
    lane.startNext = start.offset
    lane.storedNext = start.storedNext
    lane.submittedNext = start.storedNext
    this.tell({ type: "gained", key: lane, stored: start.storedNext })
    this.gate?.add(lane)
  }

  /** Begins anew: what was stored says nothing about what is read from here on. */
  restarted(lane: Lane): void {
    lane.handedNext = undefined
    lane.handedOffset = undefined
    lane.storedNext = undefined
    lane.submittedNext = undefined
    this.tell({ type: "gained", key: lane, stored: undefined })
    this.gate?.reset(lane)
    this.gate?.overruled(lane)
  }

  /** The history is over: what waits to be stored of it is refused. */
  sourceChanged(lane: Lane): void {
    const error = this.#stored.historyChanged(lane.partition, lane.handedOffset)
    lane.history = lane.machine.lineage
    this.restarted(lane)
    this.committer?.drop(lane, error)
  }

  /** The partition is another member's: what waits to be stored of it is refused. */
  dropped(lane: Lane): void {
    this.gate?.remove(lane)
    this.tell({ type: "dropped", key: lane })
    this.committer?.drop(lane, this.#stored.notAssigned(lane.partition, lane.handedOffset))
  }

  /** The partition is about to be handed over. Settles when what may be stored of it is. */
  async release(lane: Lane): Promise<void> {
    this.#leaveGate(lane)
    if (!this.tell({ type: "released", key: lane })) {
      // A commit of the caller's own may be on its way, which nobody else tries again when it fails.
      await this.committer?.settledOf(lane)
      this.tell({ type: "released", key: lane })
    }
    await this.committer?.settledOf(lane)
  }

  /**
   * A transaction stores the progress of these partitions. Settles when no store of theirs is on its way, which might come behind the
   * commit and undo it; what was handled before is not stored otherwise.
   */
  async leaveToTransaction(lanes: readonly Lane[]): Promise<void> {
    for (const lane of lanes) this.#countAsStored(lane)
    if (this.committer?.busy !== true) return
    await Promise.all(lanes.map((lane) => this.committer?.settledOf(lane)))
    // What failed for good would be stored again with the next moment of the policy.
    for (const lane of lanes) this.#countAsStored(lane)
  }

  /**
   * What comes before reading goes on elsewhere in a partition: with the policy `onRead`, the store of the offset before it (table 2.5).
   * @throws InvalidError while it is not known whether the last store has happened
   */
  beforeSeek(lane: Lane): { readonly before?: (next: bigint) => Promise<void> } {
    const gate = this.gate
    if (gate === undefined) return {}
    gate.refuseUncertain(lane)
    return { before: (next) => gate.halted(lane, () => this.#storeBeforeSeek(lane, next)) }
  }

  /** How many records may be handed out before the policy must hear of it. */
  get window(): number {
    return this.#policy.window
  }

  /** Whether a store must come before the next message is handed out. */
  get held(): boolean {
    return this.#each && this.committer?.busy === true
  }

  /** Settles when no store is under way or waiting. */
  settled(): Promise<void> {
    return this.committer?.settled() ?? Promise.resolve()
  }

  /** Commands the last stores. @returns what fails of those that nobody waits for, once `settled` has settled */
  end(): () => MillraceError | undefined {
    this.#failure = undefined
    this.#timer?.stop()
    this.#scanTimer?.stop()
    for (const lane of this.#host.lanes) if (lane.live) this.#leaveGate(lane)
    this.gate?.close()
    this.tell({ type: "shutdown" })
    return () => {
      this.committer?.end(new ClosedError(`${this.#identity.what} was shut down`))
      return this.#failure
    }
  }

  /**
   * The caller stores something by its own will, forward or back; `undefined`: deletes what is stored. It stands until more than it is
   * handled. What the policy gives to the store meanwhile comes behind it.
   */
  async place(lane: Lane, next: bigint | undefined): Promise<void> {
    const { submittedNext, history } = lane
    const { prefix } = lane.ranges
    const own = this.gate?.overruled(lane)
    lane.submittedNext = next
    try {
      await this.committer?.commit(lane, next)
    } catch (error) {
      if (lane.submittedNext === next) lane.submittedNext = submittedNext
      this.gate?.restored(lane, own)
      throw error
    }
    if (lane.submittedNext !== next || lane.history !== history) return
    this.tell({ type: "placed", key: lane, next })
    const handled = lane.ranges.prefix
    if (handled > prefix) this.tell({ type: "handled", key: lane, next: handled, count: 0 })
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  #countAsStored(lane: Lane): void {
    this.tell({ type: "submitted", key: lane, next: lane.ranges.prefix })
  }

  #tick(): void {
    this.#host.settle()
    this.tell({ type: "tick" })
    // What lies read ahead may be taken at any time, and a window tells of it only at its end.
    for (const lane of this.#host.lanes) if (lane.slice !== undefined && !lane.paused) this.#timer?.start()
  }

  /** Nothing but holes and filtered records may come for a long time: then no message makes the policy store. */
  #storeScanned(): void {
    const lanes = [...this.#scanned]
    this.#scanned.clear()
    this.#host.settle()
    for (const lane of lanes) if (lane.live && !lane.inHand) this.tell({ type: "released", key: lane })
  }

  #leaveGate(lane: Lane): void {
    const next = this.gate?.leave(lane)
    if (next === undefined) return
    lane.submittedNext = next
    this.committer?.submit(lane, next)
  }

  async #storeBeforeSeek(lane: Lane, next: bigint): Promise<void> {
    if (next > 0n) await this.place(lane, next)
  }
}
