/** Filters made ready to run. */
import type { Headers } from "../headers.ts"
import type { CheckedFilter, FilterExpression } from "./filter.ts"
import { compileTest } from "./filter-test.ts"
import { type FilterReason, type RecordSource, RecordView } from "./record-view.ts"
import { fault, foreign, mismatch, negated, no, type Truth, yes } from "./truth.ts"

/** One record outside a batch. */
export interface FilterRecord {
  readonly payload: Uint8Array | null
  readonly headers: Headers
}

/** What becomes of a record: `stopped` before it by the policy "stop". */
export type FilterJudgement = "selected" | "rejected" | "stopped"

/** A judgement, and why a record could not be decided on its own terms. */
export interface FilterVerdict {
  readonly judgement: FilterJudgement
  /** Present also where a policy has selected or left out the record. */
  readonly reason?: FilterReason
  readonly detail?: string
}

/** What each part of the expression says of a record. */
export interface FilterExplanation extends FilterVerdict {
  readonly root: ExplainedNode
}

/** One part of an explanation. */
export interface ExplainedNode {
  /** Where it stands: `filter.where.all[2]`. */
  readonly node: string
  /** `undefined` is unknown. */
  readonly truth: boolean | undefined
  /** Why it is unknown, unless a field is missing or null. */
  readonly unknown?: "mismatch" | "foreign" | "fault"
  readonly children?: readonly ExplainedNode[]
}

interface Node {
  readonly at: string
  readonly readsPayload: boolean
  readonly children: readonly Node[]
  truth(view: RecordView): Truth
}

/**
 * Makes a filter ready to run, once for many records.
 * @throws nothing for a filter that `checkFilter` gave
 */
export function compileFilter(filter: CheckedFilter): FilterProgram {
  return new FilterProgram(filter)
}

/** A filter that runs. Not for two threads at once; keeps nothing of a record. */
export class FilterProgram {
  readonly filter: CheckedFilter
  /** Whether some test looks into payloads. */
  readonly readsPayload: boolean
  readonly #root: Node
  readonly #view: RecordView

  constructor(filter: CheckedFilter) {
    this.filter = filter
    this.#root = compile(filter.where, "filter.where")
    this.readsPayload = this.#root.readsPayload
    this.#view = new RecordView(filter.codec)
  }

  /**
   * Judges one record of a batch. Headers decide first; the payload is decoded only when they do not.
   * @throws what the batch's accessors throw, but for headers that do not decode: these are a fault
   */
  judge(source: RecordSource, index: number): FilterJudgement {
    this.#view.look(source, index)
    return this.#judgement(this.#root.truth(this.#view))
  }

  /** The same with its reason. */
  verdictAt(source: RecordSource, index: number): FilterVerdict {
    this.#view.look(source, index)
    const verdict = this.#verdict(this.#root.truth(this.#view))
    this.#view.leave()
    return verdict
  }

  /** Judges one record. */
  verdict(record: FilterRecord): FilterVerdict {
    return this.verdictAt(sourceOf(record), 0)
  }

  /** Judges one record, and says what each part of the expression found. */
  explain(record: FilterRecord): FilterExplanation {
    const view = this.#view
    view.look(sourceOf(record), 0)
    const verdict = this.#verdict(this.#root.truth(view))
    const root = explained(this.#root, view)
    view.leave()
    return { ...verdict, root }
  }

  /** What patterns have cost so far, in steps times characters. */
  get patternWork(): number {
    return this.#view.work
  }

  /** Lets go of the record that was judged last. */
  rest(): void {
    this.#view.leave()
  }

  #judgement(truth: Truth): FilterJudgement {
    const { fault: onFault, foreign: onForeign, mismatch: onMismatch } = this.filter
    switch (truth) {
      case yes:
        return "selected"
      case mismatch:
        return onMismatch === "pass" ? "selected" : "rejected"
      case foreign:
        return onForeign === "pass" ? "selected" : "rejected"
      case fault:
        return onFault === "pass" ? "selected" : onFault === "drop" ? "rejected" : "stopped"
      default:
        return "rejected"
    }
  }

  #verdict(truth: Truth): FilterVerdict {
    const judgement = this.#judgement(truth)
    if (truth === mismatch)
      return { judgement, reason: "mismatch", detail: "a value has a type that its test cannot compare" }
    const difficulty = truth === fault ? this.#view.fault : truth === foreign ? this.#view.foreign : undefined
    return { judgement, ...difficulty }
  }
}

function sourceOf({ payload, headers }: FilterRecord): RecordSource {
  return { payload: () => payload, headers: () => headers }
}

function compile(expression: FilterExpression, at: string): Node {
  if ("all" in expression) return group(expression.all, `${at}.all`, no)
  if ("any" in expression) return group(expression.any, `${at}.any`, yes)
  if ("not" in expression) {
    const child = compile(expression.not, `${at}.not`)
    return { at, readsPayload: child.readsPayload, children: [child], truth: (view) => negated(child.truth(view)) }
  }
  return { at, readsPayload: expression.path !== undefined, children: [], truth: compileTest(expression, at) }
}

function group(parts: readonly FilterExpression[], at: string, decisive: typeof no | typeof yes): Node {
  const children = parts.map((part, i) => compile(part, `${at}[${i}]`))
  // Those that need no payload go first: where they decide, it is not decoded.
  const inTurn = [...children].sort((a, b) => Number(a.readsPayload) - Number(b.readsPayload))
  const otherwise = decisive === no ? yes : no
  return {
    at: at.slice(0, at.lastIndexOf(".")),
    readsPayload: children.some(({ readsPayload }) => readsPayload),
    children,
    truth: (view) => {
      let gravest: Truth = otherwise
      for (let i = 0; i < inTurn.length; i++) {
        const truth = (inTurn[i] as Node).truth(view)
        if (truth === decisive) return decisive
        if (truth > yes && truth > gravest) gravest = truth
      }
      return gravest
    },
  }
}

function explained(node: Node, view: RecordView): ExplainedNode {
  const truth = node.truth(view)
  const children = node.children.map((child) => explained(child, view))
  const why = truth === mismatch ? "mismatch" : truth === foreign ? "foreign" : truth === fault ? "fault" : undefined
  return {
    node: node.at,
    truth: truth === yes ? true : truth === no ? false : undefined,
    ...(why === undefined ? {} : { unknown: why }),
    ...(children.length === 0 ? {} : { children }),
  }
}
