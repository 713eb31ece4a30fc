import {
  AlreadyExistsError,
  type CheckedFilter,
  checkFilter,
  type Filter,
  filterText,
  type HeadersInit,
  InvalidError,
  type MillraceError,
  NotFoundError,
  parseFilterText,
  type TopicName,
} from "@millrace/contract"
import type { LiveContext } from "../client/live-context.ts"
import { topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import type { FilterOutcome, RevisionState, StoredBinding, StoredRevision } from "./filter-binding.machine.ts"
import type { FilterCommand, FilterGroup } from "./filter-event.ts"
import { newerFilter } from "./filter-log.ts"
import {
  type FilterPreview,
  type FilterTestResult,
  type PreviewOptions,
  previewFilter,
  type TestOptions,
  testFilter,
} from "./filter-preview.ts"

/** A filter to put in force: a definition, or one of the group's own revisions. */
export type FilterSpec =
  | { readonly filter: Filter; readonly revision?: undefined }
  | { readonly revision: number; readonly filter?: undefined }

/** One definition of a group's filter. */
export interface FilterRevision {
  /** From 1. A number is never given out twice, not even after `delete`. */
  readonly revision: number
  /** SHA-256 of the filter's canonical text, as 64 hex digits: equal filters, equal digests. */
  readonly digest: string
  /** With every default filled in. */
  readonly filter: CheckedFilter
  /** `draft` until it is enabled for the first time. Only an enabled revision can be in force. */
  readonly state: RevisionState
  /** When it was stored. */
  readonly createdMicros: bigint
}

/** The filter that is in force. */
export interface FilterBinding {
  readonly revision: number
  readonly digest: string
  readonly filter: CheckedFilter
  /** False while the revision is disabled: the group's consumers then read nothing, and say so. */
  readonly enabled: boolean
  /** Since when it has been in force. */
  readonly sinceMicros: bigint
}

/** Some revisions of a group's filter, the newest first. */
export interface FilterRevisionPage {
  readonly revisions: readonly FilterRevision[]
  /** How many there are in all. */
  readonly total: number
  /** The number of the last revision that was ever made, for `revise`; 0 before the first. */
  readonly newest: number
}

const largestPage = 100
const longestOperation = 128

/**
 * The filter of one consumer group on one topic (seed 000, "Receive only matching records"; table 1.13): which records its consumers and
 * readers get, for all members alike. It belongs to the names of topic and group: it stays when one of them is deleted and made again.
 */
export class GroupFilter {
  readonly #context: LiveContext
  readonly #group: FilterGroup

  constructor(context: LiveContext, topic: TopicName, group: string) {
    this.#context = context
    this.#group = { stream: topic.stream, topic: topic.topic, group }
  }

  /**
   * Puts a filter in force. The same filter again changes nothing, so that every program can say at its start what it expects.
   * @throws InvalidError with the path of the fault; AlreadyExistsError when another filter is in force, with both digests; InvalidError
   *   when this filter's revision was disabled; else as `configureWith`
   */
  async configure(filter: Filter): Promise<FilterBinding> {
    return await this.#configure({ filter }, undefined)
  }

  /**
   * Puts a definition or one of the group's own revisions in force.
   * @throws NotFoundError for a revision that there is not; UnsupportedError when a newer Millrace keeps the filter; with `outcome: "unknown"`
   *   when it cannot be told within 30 s whether it was stored; else as `configure`
   */
  async configureWith(spec: FilterSpec): Promise<FilterBinding> {
    return await this.#configure(spec, undefined)
  }

  /**
   * As `configureWith`, under an operation that the caller names: the same call again, also by another process after a crash, answers what
   * became of it the first time. The last 1,000 operations of a group are remembered.
   * @param operationId 1 to 128 characters.
   * @throws InvalidError when the operation was used for something else; else as `configureWith`
   */
  async configureAs(operationId: string, spec: FilterSpec): Promise<FilterBinding> {
    const valid = typeof operationId === "string" && operationId.length > 0 && operationId.length <= longestOperation
    if (!valid || !operationId.isWellFormed()) {
      throw new InvalidError(
        `${this.#what}: an operation id must be a text of 1 to ${longestOperation} characters, not ${shown(operationId)}`,
      )
    }
    return await this.#configure(spec, operationId)
  }

  /** The filter in force; `undefined` while the group reads everything. @throws UnsupportedError when a newer Millrace keeps it */
  async get(): Promise<FilterBinding | undefined> {
    const { machine } = await this.#view()
    return machine.binding && bindingOf(machine.binding)
  }

  /**
   * Revisions, the newest first.
   * @param page From 1, the default.
   * @param size How many a page has, from 1 to 100. Default 20.
   */
  async revisions(page: number = 1, size: number = 20): Promise<FilterRevisionPage> {
    this.#checkCount("page", page, { least: 1, most: Number.MAX_SAFE_INTEGER })
    this.#checkCount("page size", size, { least: 1, most: largestPage })
    const { machine } = await this.#view()
    const all = machine.revisions.toReversed()
    const revisions = all.slice((page - 1) * size, page * size).map(revisionOf)
    return { revisions, total: all.length, newest: machine.newest }
  }

  /**
   * Stores the next revision as a draft, which selects nothing until it is enabled.
   * @param expectedRevision The newest revision as the caller knows it (`revisions().newest`; 0 when there was none): of two that revise
   *   at the same time one is refused.
   * @throws AlreadyExistsError when there is a newer one; InvalidError with the path of the fault, and above 1,000 revisions
   */
  async revise(expectedRevision: number, filter: Filter): Promise<FilterRevision> {
    this.#checkCount("expected revision", expectedRevision, { least: 0, most: Number.MAX_SAFE_INTEGER })
    const text = filterText(checkFilter(filter))
    const outcome = await this.#mutate({ type: "revise", expected: expectedRevision, text })
    return revisionOf(outcome.revision as StoredRevision)
  }

  /**
   * Enables or disables a revision. Enabling one while a filter is in force puts it in force in its place: consumers change over within
   * 2 s, without reading unfiltered in between. Disabling the one in force stops the group's consumers, which say so.
   * @throws NotFoundError for a revision that there is not
   */
  async setRevisionEnabled(revision: number, enabled: boolean): Promise<FilterRevision> {
    this.#checkRevision(revision)
    if (typeof enabled !== "boolean")
      throw new InvalidError(`${this.#what}: enabled is ${shown(enabled)}, not true or false`)
    const outcome = await this.#mutate({ type: "enable", revision, enabled })
    return revisionOf(outcome.revision as StoredRevision)
  }

  /** Takes the filter out of force and forgets its revisions: the group reads everything. @throws NotFoundError when there is none */
  async delete(): Promise<void> {
    await this.#mutate({ type: "delete" })
  }

  /** Takes the filter out of force but keeps its revisions: the group reads everything. @throws NotFoundError when none is in force */
  async release(): Promise<void> {
    await this.#mutate({ type: "release" })
  }

  /**
   * What a filter would select of records that are there. Joins no group and stores nothing.
   * @throws InvalidError for an option; NotFoundError for the topic, the partition or the filter; OffsetOutOfRangeError behind the end
   */
  async preview(partition: number, options?: PreviewOptions): Promise<FilterPreview> {
    const choose = (): Promise<CheckedFilter> => this.#choose(options)
    return await previewFilter(this.#context, { group: this.#group, partition, choose, what: this.#what }, options)
  }

  /**
   * What a filter would do with one record, and why.
   * @param payload `null` for a record without one.
   * @throws InvalidError for an option or a header; NotFoundError when the group has no filter and `options` names none
   */
  async test(payload: Uint8Array | null, headers?: HeadersInit, options?: TestOptions): Promise<FilterTestResult> {
    return testFilter(this.#what, { payload, headers, filter: await this.#choose(options) })
  }

  // ---- inside ---------------------------------------------------------------------------------------------

  async #configure(spec: FilterSpec, operation: string | undefined): Promise<FilterBinding> {
    const { filter, revision } = (spec ?? {}) as FilterSpec
    if ((filter === undefined) === (revision === undefined)) {
      throw new InvalidError(`${this.#what}: a filter to put in force is either { filter } or { revision }`)
    }
    if (revision !== undefined) this.#checkRevision(revision)
    const command: FilterCommand =
      revision === undefined ? { type: "configure", text: filterText(checkFilter(filter)) } : { type: "bind", revision }
    const outcome = await this.#mutate(command, operation)
    return bindingOf(outcome.binding as StoredBinding)
  }

  async #mutate(command: FilterCommand, operation?: string): Promise<FilterOutcome & { readonly applied: true }> {
    this.#context.assertOpen()
    const outcome = await this.#context.filters.log.mutate(this.#group, command, operation)
    if (!outcome.applied) throw this.#refusal(outcome)
    return outcome
  }

  async #view(): Promise<ReturnType<LiveContext["filters"]["log"]["view"]>> {
    this.#context.assertOpen()
    const { log } = this.#context.filters
    await log.refresh()
    const view = log.view(this.#group)
    if (view.newer !== undefined) throw newerFilter(this.#group, view.newer)
    return view
  }

  /** The filter that is meant: the one given, a revision, or the one in force. */
  async #choose(options: { readonly filter?: Filter; readonly revision?: number } | undefined): Promise<CheckedFilter> {
    const { filter, revision } = options ?? {}
    if (filter !== undefined && revision !== undefined) {
      throw new InvalidError(`${this.#what}: options "filter" and "revision" exclude each other: give one`)
    }
    if (filter !== undefined) return checkFilter(filter)
    if (revision !== undefined) this.#checkRevision(revision)
    const { machine } = await this.#view()
    const stored = revision === undefined ? machine.binding?.revision : machine.revision(revision)
    if (stored !== undefined) return parseFilterText(stored.text)
    const missing = revision === undefined ? "has no filter in force" : `'s filter has no revision ${revision}`
    throw new NotFoundError(`${this.#what} ${missing}`, { context: { ...this.#group } })
  }

  #refusal({ reason, message }: FilterOutcome & { readonly applied: false }): MillraceError {
    const text = `${this.#what}: ${message}`
    const details = { context: { ...this.#group, reason } }
    if (reason === "conflict") return new AlreadyExistsError(text, details)
    if (reason === "not_found") return new NotFoundError(text, details)
    return new InvalidError(text, details)
  }

  #checkRevision(revision: unknown): void {
    this.#checkCount("revision", revision, { least: 1, most: Number.MAX_SAFE_INTEGER })
  }

  #checkCount(what: string, value: unknown, { least, most }: { readonly least: number; readonly most: number }): void {
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= least && value <= most) return
    const upTo = most === Number.MAX_SAFE_INTEGER ? `from ${least}` : `from ${least} to ${most}`
    throw new InvalidError(`${this.#what}: ${what} ${shown(value)} is not a whole number ${upTo}`)
  }

  get #what(): string {
    return `the filter of group ${shown(this.#group.group)} on topic "${topicText(this.#group)}"`
  }
}

function revisionOf({ revision, digest, text, state, createdMicros }: StoredRevision): FilterRevision {
  return { revision, digest, filter: parseFilterText(text), state, createdMicros }
}

function bindingOf({ revision, sinceMicros }: StoredBinding): FilterBinding {
  const { revision: number, digest, text, state } = revision
  return { revision: number, digest, filter: parseFilterText(text), enabled: state === "enabled", sinceMicros }
}
