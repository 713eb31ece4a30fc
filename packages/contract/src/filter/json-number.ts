/** Whole numbers of a JSON text with all of their digits, where `JSON.parse` has rounded them. */
import type { PathSegment } from "./field-path.ts"

/** A whole number of more digits stays what `JSON.parse` made of it. */
const mostDigits = 512

const space = /[ \t\n\r]*/y
const number = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const wholeNumber = /^-?\d+$/
/** `true`, `false`, `null` or a number. */
const scalar = /[a-z\d.eE+-]+/y
const string = /"(?:[^"\\]|\\.)*"/y

/**
 * The number at a path of a text that `JSON.parse` has taken, exactly; `undefined` where it has a fraction or an exponent, or is no number.
 * Of keys that repeat the last counts, as for `JSON.parse`.
 */
export function exactJsonNumber(text: string, path: readonly PathSegment[]): bigint | undefined {
  const start = find(text, path)
  return start === undefined ? undefined : wholeAt(text, start)
}

/**
 * The elements of the list at such a path: those that are whole numbers, exactly; `undefined` in the place of others.
 */
export function exactJsonNumbers(text: string, path: readonly PathSegment[]): readonly (bigint | undefined)[] {
  const start = find(text, path)
  if (start === undefined || text[start] !== "[") return []
  const elements: (bigint | undefined)[] = []
  let at = skipSpace(text, start + 1)
  while (text[at] !== "]") {
    elements.push(wholeAt(text, at))
    at = behindValue(text, at)
  }
  return elements
}

function wholeAt(text: string, at: number): bigint | undefined {
  number.lastIndex = at
  const digits = number.exec(text)?.[0]
  return digits !== undefined && digits.length <= mostDigits && wholeNumber.test(digits) ? BigInt(digits) : undefined
}

function find(text: string, path: readonly PathSegment[]): number | undefined {
  let at = skipSpace(text, 0)
  for (const segment of path) {
    const found =
      text[at] === "{" ? member(text, at, segment) : text[at] === "[" ? element(text, at, segment) : undefined
    if (found === undefined) return undefined
    at = found
  }
  return at
}

function member(text: string, start: number, key: PathSegment): number | undefined {
  let found: number | undefined
  let at = skipSpace(text, start + 1)
  while (text[at] !== "}") {
    const end = skipString(text, at)
    const name = JSON.parse(text.slice(at, end))
    at = skipSpace(text, skipSpace(text, end) + 1)
    if (name === key) found = at
    at = behindValue(text, at)
  }
  return found
}

function element(text: string, start: number, index: PathSegment): number | undefined {
  let at = skipSpace(text, start + 1)
  for (let i = 0; text[at] !== "]"; i++) {
    if (i === index) return at
    at = behindValue(text, at)
  }
  return undefined
}

/** Behind a value and the comma after it. */
function behindValue(text: string, start: number): number {
  const at = skipSpace(text, skipValue(text, start))
  return text[at] === "," ? skipSpace(text, at + 1) : at
}

/** Behind a value; without recursion, however deep it is. */
function skipValue(text: string, start: number): number {
  let depth = 0
  let at = start
  while (at < text.length) {
    const character = text[at]
    if (character === '"') at = skipString(text, at)
    else if (character === "{" || character === "[") {
      depth++
      at++
    } else if (character === "}" || character === "]") {
      depth--
      at++
    } else if (depth === 0) {
      scalar.lastIndex = at
      scalar.test(text)
      return scalar.lastIndex
    } else at++
    if (depth === 0) return at
  }
  return at
}

function skipString(text: string, start: number): number {
  string.lastIndex = start
  string.test(text)
  return string.lastIndex
}

function skipSpace(text: string, start: number): number {
  space.lastIndex = start
  space.test(text)
  return space.lastIndex
}
