/**
 * The filter of one group: its revisions, and which of them is in force. Pure: mutations in the order of the log in, what becomes of each
 * out. Every reader of the log holds the same machine, which is how a mutation that expects something is compared and set at once on any
 * backend.
 *
 *     state      configure(same) configure(other)  bind(enabled)    enable(n)       disable(bound)  release   delete
 *     none       bound           bound             bound            none            –               refused   none
 *     bound      bound           conflict          as configure     bound to n      disabled        none      none
 *     disabled   disabled        conflict          as configure     bound to n      disabled        none      none
 *
 * A revision is a draft until it is enabled or configured. Numbers count from 1 and are never given out again, not even after `delete`.
 * `none` keeps the revisions, but for `delete`.
 */
import { nodeCrypto } from "@millrace/runtime"
import type { FilterCommand } from "./filter-event.ts"

/** What a revision may be used for: a draft and a disabled one select nothing. */
export type RevisionState = "draft" | "enabled" | "disabled"

/** One definition of a group's filter. */
export interface StoredRevision {
  /** From 1. */
  readonly revision: number
  /** SHA-256 of the text, as hex. */
  readonly digest: string
  /** The filter in its canonical text. */
  readonly text: string
  readonly state: RevisionState
  readonly createdMicros: bigint
}

/** Which revision is in force, and since when it is. */
export interface StoredBinding {
  readonly revision: StoredRevision
  readonly sinceMicros: bigint
}

/** Why a mutation was not carried out. */
export type RefusalReason = "conflict" | "not_found" | "revision_disabled" | "capacity_exhausted" | "invalid_request"

/** What became of a mutation. */
export type FilterOutcome =
  | {
      readonly applied: true
      readonly binding: StoredBinding | undefined
      /** The revision that the mutation was about. */
      readonly revision: StoredRevision | undefined
    }
  | { readonly applied: false; readonly reason: RefusalReason; readonly message: string }

/** A mutation at its place in the log. */
export interface FilterMutation {
  readonly operation: string
  readonly command: FilterCommand
  /** The append time of its record. */
  readonly atMicros: bigint
}

/** A group has at most so many revisions; `delete` makes room. @internal */
export const mostRevisions = 1000

/** Outcomes of the newest operations that are remembered. @internal */
export const operationsKept = 1000

interface State {
  readonly revisions: readonly StoredRevision[]
  readonly newest: number
  readonly bound: { readonly revision: number; readonly sinceMicros: bigint } | undefined
}

interface Verdict {
  readonly state: State
  readonly outcome: FilterOutcome
}

export class FilterBindingMachine {
  #state: State = { revisions: [], newest: 0, bound: undefined }
  readonly #operations = new Map<string, { readonly command: string; readonly outcome: FilterOutcome }>()

  /** In the order of their numbers. */
  get revisions(): readonly StoredRevision[] {
    return this.#state.revisions
  }

  /** The number of the last revision that was made; 0 before the first. */
  get newest(): number {
    return this.#state.newest
  }

  get binding(): StoredBinding | undefined {
    return bindingOf(this.#state)
  }

  revision(number: number): StoredRevision | undefined {
    return find(this.#state, number)
  }

  /** What was recorded for an operation, if that was not long ago. */
  outcome(operation: string): FilterOutcome | undefined {
    return this.#operations.get(operation)?.outcome
  }

  /** Whether an operation was recorded for another command. */
  differs(operation: string, command: FilterCommand): boolean {
    const known = this.#operations.get(operation)
    return known !== undefined && known.command !== JSON.stringify(command)
  }

  /** What would become of a command now, and whether anything would change. */
  judge(command: FilterCommand): { readonly outcome: FilterOutcome; readonly changes: boolean } {
    const { state, outcome } = decide(this.#state, command, 0n)
    return { outcome, changes: state !== this.#state }
  }

  /** Carries a mutation out, or not. One that was recorded before changes nothing, whatever became of it. */
  handle({ operation, command, atMicros }: FilterMutation): FilterOutcome {
    const known = this.#operations.get(operation)
    if (known !== undefined) return known.outcome
    const { state, outcome } = decide(this.#state, command, atMicros)
    this.#state = state
    this.#operations.set(operation, { command: JSON.stringify(command), outcome })
    if (this.#operations.size > operationsKept) {
      for (const oldest of this.#operations.keys()) {
        this.#operations.delete(oldest)
        break
      }
    }
    return outcome
  }
}

/** The digest of a filter: SHA-256 of its canonical text in UTF-8, as hex. */
export function filterDigest(text: string): string {
  return nodeCrypto().createHash("sha256").update(text, "utf8").digest("hex")
}

function decide(state: State, command: FilterCommand, atMicros: bigint): Verdict {
  switch (command.type) {
    case "configure":
      return configure(state, command.text, atMicros)
    case "bind":
      return bind(state, command.revision, atMicros)
    case "revise":
      return revise(state, command, atMicros)
    case "enable":
      return enable(state, command, atMicros)
    case "release":
      if (state.bound === undefined) return refused(state, "not_found", "the group has no filter in force")
      return applied({ ...state, bound: undefined })
    case "delete":
      if (state.revisions.length === 0) return refused(state, "not_found", "the group has no filter")
      return applied({ ...state, revisions: [], bound: undefined })
  }
}

function configure(state: State, text: string, atMicros: bigint): Verdict {
  const digest = filterDigest(text)
  const present = bindingOf(state)?.revision
  if (present !== undefined) return present.digest === digest ? applied(state) : conflict(state, present, digest)
  const known = state.revisions.findLast((revision) => revision.digest === digest)
  if (known?.state === "disabled") return disabled(state, known)
  if (known !== undefined) return bound(withState(state, known.revision, "enabled"), known.revision, atMicros)
  if (state.revisions.length >= mostRevisions) return full(state)
  const added = add(state, { text, digest, state: "enabled", createdMicros: atMicros })
  return bound(added, added.newest, atMicros)
}

function bind(state: State, number: number, atMicros: bigint): Verdict {
  const revision = find(state, number)
  if (revision === undefined) return missing(state, number)
  const present = bindingOf(state)?.revision
  if (present !== undefined) {
    return present.digest === revision.digest ? applied(state) : conflict(state, present, revision.digest)
  }
  return revision.state === "enabled" ? bound(state, number, atMicros) : disabled(state, revision)
}

function revise(state: State, command: FilterCommand & { type: "revise" }, atMicros: bigint): Verdict {
  const { expected, text } = command
  if (expected !== state.newest) {
    const message = `revision ${expected} is not the newest any more: that is ${state.newest === 0 ? "none (expect 0)" : state.newest}`
    return refused(state, "conflict", message)
  }
  if (state.revisions.length >= mostRevisions) return full(state)
  const added = add(state, { text, digest: filterDigest(text), state: "draft", createdMicros: atMicros })
  return applied(added, added.newest)
}

/** Enabling a revision of a group that has a filter puts it in force in place of the present one, in one step. */
function enable(state: State, command: FilterCommand & { type: "enable" }, atMicros: bigint): Verdict {
  const { revision: number, enabled } = command
  const revision = find(state, number)
  if (revision === undefined) return missing(state, number)
  const changed = withState(state, number, enabled ? "enabled" : "disabled")
  if (!enabled || state.bound === undefined || state.bound.revision === number) return applied(changed, number)
  return applied({ ...changed, bound: { revision: number, sinceMicros: atMicros } }, number)
}

function add(state: State, revision: Omit<StoredRevision, "revision">): State {
  const newest = state.newest + 1
  return { ...state, newest, revisions: [...state.revisions, { revision: newest, ...revision }] }
}

function withState(state: State, number: number, next: RevisionState): State {
  if (find(state, number)?.state === next) return state
  const revisions = state.revisions.map((one) => (one.revision === number ? { ...one, state: next } : one))
  return { ...state, revisions }
}

function bound(state: State, revision: number, sinceMicros: bigint): Verdict {
  return applied({ ...state, bound: { revision, sinceMicros } }, revision)
}

function applied(state: State, revision?: number): Verdict {
  const about = revision === undefined ? undefined : find(state, revision)
  const binding = bindingOf(state)
  return { state, outcome: { applied: true, binding, revision: about ?? binding?.revision } }
}

function refused(state: State, reason: RefusalReason, message: string): Verdict {
  return { state, outcome: { applied: false, reason, message } }
}

function conflict(state: State, present: StoredRevision, digest: string): Verdict {
  const message = `revision ${present.revision} with digest ${present.digest} is in force, and digest ${digest} is another filter: release or revise the present one, or use another group`
  return refused(state, "conflict", message)
}

function disabled(state: State, { revision, state: present }: StoredRevision): Verdict {
  const message = `revision ${revision} is ${present === "draft" ? "a draft" : "disabled"}: enable it first`
  return refused(state, "revision_disabled", message)
}

function missing(state: State, number: number): Verdict {
  return refused(state, "not_found", `the group's filter has no revision ${number}`)
}

function full(state: State): Verdict {
  const message = `the group's filter has ${mostRevisions} revisions, which is the most: delete it to make room`
  return refused(state, "capacity_exhausted", message)
}

function find(state: State, number: number): StoredRevision | undefined {
  return state.revisions.find(({ revision }) => revision === number)
}

function bindingOf(state: State): StoredBinding | undefined {
  if (state.bound === undefined) return undefined
  const revision = find(state, state.bound.revision)
  return revision === undefined ? undefined : { revision, sinceMicros: state.bound.sinceMicros }
}
