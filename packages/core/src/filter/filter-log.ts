/**
 * The filters of groups, as one client knows them: folded from the topic `millrace/filters`, which is read on when somebody wants to know
 * more. A mutation is a record of that topic: it is appended, and what became of it is told by reading on to it, so that of two clients
 * that race exactly one is told that it won, on a backend that knows nothing but logs.
 */
import {
  type EncodedBatch,
  type Lineage,
  type MillraceError,
  NotFoundError,
  TimeoutError,
  type TopicName,
  UnsupportedError,
} from "@millrace/contract"
import { attempt } from "../client/attempts.ts"
import { readLogRange } from "../client/log-range.ts"
import { type OwnTopicParts, OwnTopicWriter, ownTopic, ownWatermarks } from "../client/own-topic.ts"
import { topicSpec } from "../client/topic-options.ts"
import { newUlid } from "../observe/ulid.ts"
import { asMillraceError } from "../partition/failure.ts"
import { FilterBindingMachine, type FilterOutcome } from "./filter-binding.machine.ts"
import {
  decodeFilterEvent,
  encodeFilterEvent,
  type FilterCommand,
  type FilterGroup,
  filterEventKey,
  filterEventVersion,
  filterGroupKey,
} from "./filter-event.ts"

/** One partition; records never expire. */
export const filterTopic: TopicName = ownTopic("filters")

/** Tries of one mutation, and the wait between two of them in ms (table 1.13). */
const tries = 3
const retryMs = 200

/** The most that a mutation takes until its outcome is known, and the most that reading takes, in ms (table 1.13). */
const outcomeWaitMs = 30_000

/** How often the log is looked at again when it goes away while it is read. */
const mostRounds = 5

/** What a group's filter is, and what it was. */
export interface FilterView {
  readonly machine: FilterBindingMachine
  /** The format of mutations that this version cannot read, when there are any: then nothing certain can be told. */
  readonly newer: number | undefined
}

export class FilterLog {
  readonly #parts: OwnTopicParts
  readonly #writer: OwnTopicWriter
  readonly #listeners = new Set<() => void>()
  #groups = new Map<string, { machine: FilterBindingMachine; newer: number | undefined }>()
  #lineage: Lineage | undefined
  #next = 0n
  #reading: Promise<void> | undefined
  #queued: Promise<void> | undefined

  /** Nothing is asked of the backend before it is used. */
  constructor(parts: OwnTopicParts) {
    this.#parts = parts
    const spec = topicSpec("the topic of filters", { partitions: 1, options: {} }, parts.session.manifest)
    this.#writer = new OwnTopicWriter(parts, filterTopic, spec)
  }

  /** Whether there were filters of any group when the log was last looked at. */
  get exists(): boolean {
    return this.#lineage !== undefined
  }

  /** What is known of a group, as of the last `refresh`. */
  view(group: FilterGroup): FilterView {
    return this.#groups.get(filterGroupKey(group)) ?? { machine: new FilterBindingMachine(), newer: undefined }
  }

  /** Calls back whenever something new was read. The answer ends it. */
  listen(listener: () => void): () => void {
    const own = (): void => listener()
    this.#listeners.add(own)
    return () => void this.#listeners.delete(own)
  }

  /**
   * Reads everything that was in the log when it was called. Calls that wait share what is read.
   * @throws what the backend says; TimeoutError when it takes more than 30 s
   */
  refresh(): Promise<void> {
    if (this.#reading === undefined) return this.#start()
    // What is being read may have begun before this call: the next one is this caller's.
    this.#queued ??= this.#reading
      .catch(() => {})
      .then(() => {
        this.#queued = undefined
        return this.refresh()
      })
    return this.#queued
  }

  /**
   * Asks for a mutation, and answers what became of it. What would change nothing is not written, unless the caller named the operation.
   * @param named Makes the mutation recognisable: asked for again, it answers what became of it the first time.
   * @throws UnsupportedError for a group whose filter a newer version keeps; what the backend says; with `outcome: "unknown"` and the
   *   operation in its context when it cannot be told whether the mutation was recorded
   */
  async mutate(group: FilterGroup, command: FilterCommand, named?: string): Promise<FilterOutcome> {
    const untilMs = this.#now + outcomeWaitMs
    await this.#within(untilMs, "reading the filters", () => this.refresh())
    const known = this.#known(group, command, named)
    if (known !== undefined) return known
    const operation = named ?? newUlid(this.#parts.clock, this.#parts.random)
    const event = encodeFilterEvent({ group, operation, command })
    let failure: MillraceError | undefined
    let doubtful = false
    for (let round = 0; round < tries; round++) {
      if (round > 0) await this.#pause(retryMs)
      try {
        await this.#within(untilMs, "storing a filter", () => this.#writer.append(filterEventKey(group), event))
        doubtful = true
      } catch (error) {
        failure = asMillraceError(error)
        doubtful ||= failure.outcome === "unknown"
        // A topic that was deleted since is made again.
        if (!failure.retryable && failure.outcome === "rejected" && !(failure instanceof NotFoundError)) break
      }
      if (!doubtful) continue
      try {
        await this.#within(untilMs, "reading the filters", () => this.refresh())
        const outcome = this.#outcome(group, operation)
        if (outcome !== undefined) return outcome
      } catch (error) {
        failure = asMillraceError(error)
        if (failure instanceof UnsupportedError) throw failure
      }
    }
    throw this.#lost(failure, { doubtful, operation })
  }

  /** What can be answered without writing anything. */
  #known(group: FilterGroup, command: FilterCommand, named: string | undefined): FilterOutcome | undefined {
    const { machine, newer } = this.view(group)
    if (newer !== undefined) throw newerFilter(group, newer)
    if (named === undefined) {
      const { outcome, changes } = machine.judge(command)
      return changes ? undefined : outcome
    }
    if (!machine.differs(named, command)) return machine.outcome(named)
    const message = `operation ${JSON.stringify(named)} was recorded for another mutation: give each its own`
    return { applied: false, reason: "invalid_request", message }
  }

  #outcome(group: FilterGroup, operation: string): FilterOutcome | undefined {
    const { machine, newer } = this.view(group)
    if (newer !== undefined) throw newerFilter(group, newer)
    return machine.outcome(operation)
  }

  #lost(failure: MillraceError | undefined, of: { doubtful: boolean; operation: string }): MillraceError {
    const { doubtful, operation } = of
    if (failure !== undefined && !doubtful) return failure
    return new TimeoutError(
      `it is not known whether the filter was changed: its mutation did not come back within ${tries} tries. Ask with the same operation ${JSON.stringify(operation)} again`,
      {
        retryable: true,
        outcome: "unknown",
        context: { operation },
        ...(failure === undefined ? {} : { cause: failure }),
      },
    )
  }

  #start(): Promise<void> {
    const reading = this.#read().finally(() => {
      if (this.#reading === reading) this.#reading = undefined
    })
    this.#reading = reading
    return reading
  }

  async #read(): Promise<void> {
    const untilMs = this.#now + outcomeWaitMs
    for (let round = 0; round < mostRounds && this.#now < untilMs; round++) {
      const marks = await this.#marks()
      if (marks === undefined) return this.#reset(undefined)
      const { first, end, lineage } = marks
      if (lineage !== this.#lineage || end < this.#next) this.#reset(lineage)
      if (this.#next >= end) return
      if (first > this.#next) this.#next = first
      const from = { ...filterTopic, partition: 0, offset: this.#next, lineage }
      const range = { from, end, enough: () => this.#now >= untilMs }
      try {
        const { next, error } = await readLogRange(this.#parts.session, range, (batch, index) => {
          // The position moves with each record, so that a failure in between repeats none.
          this.#visit(batch, index)
        })
        if (error !== undefined && !movedAway(error)) throw error
        if (next > this.#next) this.#next = next
      } finally {
        this.#tell()
      }
      if (this.#next >= end) return
    }
    throw new TimeoutError("the filters could not be read to their end", { outcome: "rejected" })
  }

  async #marks(): Promise<{ first: bigint; end: bigint; lineage: Lineage } | undefined> {
    try {
      return await ownWatermarks(this.#parts.session, filterTopic)
    } catch (error) {
      // Nobody has made a filter yet.
      if (error instanceof NotFoundError) return undefined
      throw error
    }
  }

  #reset(lineage: Lineage | undefined): void {
    const known = this.#groups.size > 0
    this.#groups = new Map()
    this.#lineage = lineage
    this.#next = 0n
    if (known) this.#tell()
  }

  #visit(batch: EncodedBatch, index: number): void {
    this.#next = batch.offset(index) + 1n
    const event = eventOf(batch, index)
    if (event === undefined) return
    const key = filterGroupKey(event.group)
    const known = this.#groups.get(key)
    const group = known ?? { machine: new FilterBindingMachine(), newer: undefined }
    if (known === undefined) this.#groups.set(key, group)
    if ("version" in event) group.newer = Math.max(group.newer ?? 0, event.version)
    else group.machine.handle({ ...event, atMicros: batch.timestampMicros(index) })
  }

  #tell(): void {
    for (const listener of [...this.#listeners]) listener()
  }

  #within<V>(untilMs: number, what: string, request: () => Promise<V>): Promise<V> {
    const timeoutMs = Math.max(1, untilMs - this.#now)
    return attempt(this.#parts.clock, { timeoutMs, retries: 0, retryBackoffMs: 1 }, { what, request })
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#parts.clock.setTimer(ms, resolve))
  }

  get #now(): number {
    return this.#parts.clock.monotonicMs()
  }
}

/** What is no event, or damaged, is passed over by every reader alike: anybody can write to the topic. */
function eventOf(batch: EncodedBatch, index: number): ReturnType<typeof decodeFilterEvent> {
  try {
    return decodeFilterEvent(batch.payload(index))
  } catch {
    return undefined
  }
}

/** The topic was deleted, purged or trimmed while it was read: looking at it again tells. */
function movedAway({ kind }: MillraceError): boolean {
  return kind === "not-found" || kind === "history-changed" || kind === "offset-out-of-range"
}

/** A newer Millrace has changed the group's filter in a way that this one cannot read (table 1.9: version_skew). */
export function newerFilter({ group }: FilterGroup, version: number): UnsupportedError {
  return new UnsupportedError(
    `the filter of group ${JSON.stringify(group)} was changed by a newer Millrace (format ${version}; this one reads up to ${filterEventVersion}): upgrade this program`,
    { context: { group, reason: "version_skew", version } },
  )
}
