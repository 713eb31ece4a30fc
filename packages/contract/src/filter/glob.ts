/** Globs: `*` is any run of characters, `?` one character, `\` takes the next as it is; the whole text has to match. */
import { InvalidError } from "../error.ts"
import { buildProgram, type PatternNode, type PatternProgram } from "./pattern-program.ts"

const anyOne: PatternNode = { kind: "character", set: { any: true }, key: "any" }
const anyRun: PatternNode = { kind: "repeat", part: anyOne, least: 0, most: Number.POSITIVE_INFINITY }

/**
 * Reads a glob.
 * @param at What to call it in an error.
 * @throws InvalidError for a `\` at its end, and for a pattern that is too large
 */
export function parseGlob(source: string, at: string): PatternProgram {
  const parts: PatternNode[] = [{ kind: "anchor", anchor: "start" }]
  const characters = [...source]
  for (let i = 0; i < characters.length; i++) {
    let character = characters[i] as string
    if (character === "*") {
      if (parts.at(-1) !== anyRun) parts.push(anyRun)
      continue
    }
    if (character === "?") {
      parts.push(anyOne)
      continue
    }
    if (character === "\\") {
      i++
      if (i === characters.length)
        throw new InvalidError(`${at}: glob ${JSON.stringify(source)} ends with a "\\" that is before nothing`)
      character = characters[i] as string
    }
    parts.push({ kind: "character", set: { codePoint: character.codePointAt(0) as number }, key: `=${character}` })
  }
  parts.push({ kind: "anchor", anchor: "end" })
  return buildProgram({ kind: "sequence", parts }, { at, word: /^\w$/u })
}
