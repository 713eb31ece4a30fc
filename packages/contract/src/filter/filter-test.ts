/** Single tests, made once as functions that judge values. */
import { type Comparison, comparisonWith } from "./comparison.ts"
import { type PathSegment, parseFieldPath } from "./field-path.ts"
import type { FilterCoercion, FilterScalar, FilterTest } from "./filter.ts"
import type { RecordView } from "./record-view.ts"
import { type TextMatch, textMatch } from "./text-match.ts"
import { mismatch, negated, no, type Truth, unknown, yes } from "./truth.ts"

/** Judges the value at a test's place; `undefined` is missing. `path` is where it stands in the payload, if it does. */
type Judge = (value: unknown, view: RecordView, path: readonly PathSegment[]) => Truth

const noPath: readonly PathSegment[] = []

/** The truth of a test for the record that the view looks at. The test has been checked. */
export function compileTest(test: FilterTest, at: string): (view: RecordView) => Truth {
  const judge = judgeOf(test, at)
  if (test.header !== undefined) {
    const { header } = test
    return (view) => {
      const found = view.header(header)
      return typeof found === "number" ? found : judge(found?.value, view, noPath)
    }
  }
  const path = parseFieldPath(test.path, at)
  return (view) => {
    const opened = view.open()
    return opened === yes ? judge(view.field(path), view, path) : opened
  }
}

function judgeOf(test: FilterTest, at: string): Judge {
  switch (test.op) {
    case "eq":
      return equality(test.value, test.as)
    case "ne": {
      const equal = equality(test.value, test.as)
      return (value, view, path) => negated(equal(value, view, path))
    }
    case "lt":
      return ordered(comparison(test.value, test.as), (order) => order < 0)
    case "lte":
      return ordered(comparison(test.value, test.as), (order) => order <= 0)
    case "gt":
      return ordered(comparison(test.value, test.as), (order) => order > 0)
    case "gte":
      return ordered(comparison(test.value, test.as), (order) => order >= 0)
    case "in":
      return membership(test.value, test.as)
    case "contains":
      return containment(test.value, { at, caseInsensitive: test.caseInsensitive ?? false })
    case "present":
      return (value) => (value === undefined ? no : yes)
    case "absent":
      return (value) => (value === undefined ? yes : no)
    default: {
      const match = textMatch(test.op, test.value, { at, caseInsensitive: test.caseInsensitive ?? false })
      return (value, view) => {
        if (value === undefined || value === null) return unknown
        return typeof value === "string" ? matched(match, value, view) : mismatch
      }
    }
  }
}

function equality(wanted: FilterScalar, coercion: FilterCoercion | undefined): Judge {
  if (wanted === null) return (value) => (value === undefined || value === null ? yes : no)
  return ordered(comparison(wanted, coercion), (order) => order === 0)
}

function ordered(compare: Comparison, holds: (order: number) => boolean): Judge {
  return (value) => {
    if (value === undefined || value === null) return unknown
    const order = compare(value)
    if (order === undefined) return mismatch
    if (Number.isNaN(order)) return unknown
    return holds(order) ? yes : no
  }
}

/** Items that the value cannot be compared with do not count, unless there are no others. */
function membership(items: readonly FilterScalar[], coercion: FilterCoercion | undefined): Judge {
  const withNull = items.includes(null)
  const compares = items.filter((item) => item !== null).map((item) => comparison(item, coercion))
  return (value) => {
    if (value === undefined || value === null) return withNull ? yes : unknown
    let truth: Truth = withNull ? no : mismatch
    for (const compare of compares) {
      const order = compare(value)
      if (order === 0) return yes
      if (order === undefined) continue
      if (Number.isNaN(order)) truth = unknown
      else if (truth === mismatch) truth = no
    }
    return truth
  }
}

function containment(
  wanted: FilterScalar,
  { at, caseInsensitive }: { readonly at: string; readonly caseInsensitive: boolean },
): Judge {
  const inText = typeof wanted === "string" ? textMatch("contains", wanted, { at, caseInsensitive }) : undefined
  const isWanted = typeof wanted === "string" ? textMatch("equals", wanted, { at, caseInsensitive }) : undefined
  const compare = wanted === null ? undefined : comparison(wanted, undefined)
  const equals = (element: unknown): boolean => {
    if (isWanted !== undefined) return typeof element === "string" && isWanted.matches(element) === true
    return compare === undefined ? element === null : compare(element) === 0
  }
  return (value, view, path) => {
    if (value === undefined || value === null) return unknown
    if (Array.isArray(value)) return view.elements(value, path).some(equals) ? yes : no
    return typeof value === "string" && inText !== undefined ? matched(inText, value, view) : mismatch
  }
}

function matched(match: TextMatch, text: string, view: RecordView): Truth {
  const found = match.matches(text)
  view.work += text.length * match.steps
  if (found === undefined)
    return view.failed("too-costly", `a text of ${text.length} characters is too long for its pattern`)
  return found ? yes : no
}

function comparison(wanted: FilterScalar, coercion: FilterCoercion | undefined): Comparison {
  const compare = wanted === null ? undefined : comparisonWith(wanted, coercion)
  // The check has refused values that do not read under their coercion.
  if (compare === undefined) throw new TypeError(`${String(wanted)} is not comparable as ${coercion}`)
  return compare
}
