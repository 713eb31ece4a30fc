/** Paths into a payload: `a.b[0]`. */
import { InvalidError } from "../error.ts"
import { filterLimits } from "./filter.ts"

/** One step: a key of an object, or an index of a list. */
export type PathSegment = string | number

const utf8 = new TextEncoder()
const mostIndex = 2 ** 32 - 1
const special = ".[]\\"

/**
 * The steps of a path. Keys stand between dots, indexes in brackets; `\` takes a `.`, `[`, `]` or `\` into a key. A key of digits is a key.
 * @param at What to call the path in an error.
 * @throws InvalidError for an empty path or key, a bracket or escape that is not closed, an index that is no plain number below 2^32, and
 *   for more than 16 steps or 256 bytes
 */
export function parseFieldPath(text: string, at: string): readonly PathSegment[] {
  const fail = (reason: string): InvalidError => new InvalidError(`${at}: path ${JSON.stringify(text)} ${reason}`)
  const bytes = utf8.encode(text).length
  if (bytes > filterLimits.pathBytes) throw fail(`has ${bytes} bytes; at most ${filterLimits.pathBytes} are allowed`)
  const segments: PathSegment[] = []
  let position = 0
  if (text === "") throw fail("is empty")
  while (position < text.length || segments.length === 0) {
    const character = text[position]
    if (character === "[") {
      const end = text.indexOf("]", position)
      const digits = end < 0 ? "" : text.slice(position + 1, end)
      if (!/^(0|[1-9]\d*)$/.test(digits) || Number(digits) > mostIndex)
        throw fail(`needs a whole number below 2^32 and a "]" at character ${position + 1}`)
      segments.push(Number(digits))
      position = end + 1
    } else {
      if (segments.length > 0) {
        if (character !== ".") throw fail(`needs a "." or "[" at character ${position}`)
        position++
      }
      let key = ""
      for (; position < text.length && text[position] !== "." && text[position] !== "["; position++) {
        if (text[position] === "]") throw fail(`has a "]" at character ${position} that nothing opened`)
        if (text[position] === "\\") {
          position++
          if (position >= text.length || !special.includes(text[position] as string))
            throw fail(`has a "\\" at character ${position - 1} that is not before ".", "[", "]" or "\\"`)
        }
        key += text[position]
      }
      if (key === "") throw fail(`has an empty key at character ${position}`)
      segments.push(key)
    }
  }
  if (segments.length > filterLimits.pathSegments)
    throw fail(`has ${segments.length} steps; at most ${filterLimits.pathSegments} are allowed`)
  return segments
}
