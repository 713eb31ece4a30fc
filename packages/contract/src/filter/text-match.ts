/** Tests of a text: equals, prefix, suffix, contains, glob, regex. */
import { parseGlob } from "./glob.ts"
import { PatternMatcher } from "./pattern-matcher.ts"
import { parseRegex } from "./regex-syntax.ts"

/** The tests that a text can be put to. */
export type TextOperator = "equals" | "prefix" | "suffix" | "contains" | "glob" | "regex"

/** One test, ready to run. */
export interface TextMatch {
  /** Steps that a character can cost; 0 for tests without a pattern. */
  readonly steps: number
  /** Whether a text passes; `undefined` when it is too long for its pattern. */
  readonly matches: (text: string) => boolean | undefined
}

/**
 * One test, made once for many texts. Without regard to case both sides are lower-cased as `toLowerCase` does; a `regex` follows
 * JavaScript's flag `i` with `u`.
 * @param at What to call the pattern in an error.
 * @throws InvalidError for a pattern of wrong syntax, or too large
 */
export function textMatch(
  operator: TextOperator,
  pattern: string,
  { at, caseInsensitive }: { readonly at: string; readonly caseInsensitive: boolean },
): TextMatch {
  if (operator === "regex") return matched(new PatternMatcher(parseRegex(pattern, { at, caseInsensitive })))
  const wanted = caseInsensitive ? pattern.toLowerCase() : pattern
  const match = operator === "glob" ? matched(new PatternMatcher(parseGlob(wanted, at))) : plain(operator, wanted)
  const { steps, matches } = match
  return caseInsensitive ? { steps, matches: (text) => matches(text.toLowerCase()) } : match
}

function plain(operator: Exclude<TextOperator, "glob" | "regex">, wanted: string): TextMatch {
  switch (operator) {
    case "equals":
      return { steps: 0, matches: (text) => text === wanted }
    case "prefix":
      return { steps: 0, matches: (text) => text.startsWith(wanted) }
    case "suffix":
      return { steps: 0, matches: (text) => text.endsWith(wanted) }
    case "contains":
      return { steps: 0, matches: (text) => text.includes(wanted) }
  }
}

function matched(matcher: PatternMatcher): TextMatch {
  const { steps, longestText } = matcher
  return { steps, matches: (text) => (text.length > longestText ? undefined : matcher.matches(text)) }
}
