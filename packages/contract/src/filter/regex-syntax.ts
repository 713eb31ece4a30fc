/**
 * The syntax of `regex` tests: JavaScript's regular expressions with the flag `u`, without what no linear-time matching can do (look-around
 * and back-references) and without inline flags. V8 checks the syntax; what is left here is to find the parts.
 */
import { InvalidError } from "../error.ts"
import { buildProgram, type PatternNode, type PatternProgram } from "./pattern-program.ts"

/** Nesting of groups. */
const deepest = 32

/**
 * Reads a regular expression.
 * @param at What to call it in an error.
 * @throws InvalidError for wrong syntax, for what is left out of the syntax, and for a pattern that is too large
 */
export function parseRegex(
  source: string,
  { at, caseInsensitive }: { readonly at: string; readonly caseInsensitive: boolean },
): PatternProgram {
  const flags = caseInsensitive ? "iu" : "u"
  try {
    new RegExp(source, flags)
  } catch (cause) {
    throw new InvalidError(`${at}: ${JSON.stringify(source)} is no regular expression: ${(cause as Error).message}`, {
      cause,
    })
  }
  const root = new RegexReader(source, { at, flags }).read()
  return buildProgram(root, { at, word: new RegExp("^\\w$", flags) })
}

class RegexReader {
  readonly #source: string
  readonly #at: string
  readonly #flags: string
  #position = 0
  #depth = 0

  constructor(source: string, { at, flags }: { readonly at: string; readonly flags: string }) {
    this.#source = source
    this.#at = at
    this.#flags = flags
  }

  read(): PatternNode {
    return this.#choice()
  }

  #choice(): PatternNode {
    const parts = [this.#sequence()]
    while (this.#peek() === "|") {
      this.#position++
      parts.push(this.#sequence())
    }
    return parts.length === 1 ? (parts[0] as PatternNode) : { kind: "choice", parts }
  }

  #sequence(): PatternNode {
    const parts: PatternNode[] = []
    for (let next = this.#peek(); next !== undefined && next !== "|" && next !== ")"; next = this.#peek())
      parts.push(this.#repeated(this.#atom(next)))
    return { kind: "sequence", parts }
  }

  #atom(next: string): PatternNode {
    switch (next) {
      case "(":
        return this.#group()
      case "^":
        this.#position++
        return { kind: "anchor", anchor: "start" }
      case "$":
        this.#position++
        return { kind: "anchor", anchor: "end" }
      case "[":
        return this.#class(this.#classEnd())
      case "\\":
        return this.#escape()
      case ".":
        return this.#class(this.#position + 1)
      default: {
        const codePoint = this.#source.codePointAt(this.#position) as number
        const end = this.#position + (codePoint > 0xffff ? 2 : 1)
        if (this.#flags === "iu") return this.#class(end)
        this.#position = end
        return { kind: "character", set: { codePoint }, key: String.fromCodePoint(codePoint) }
      }
    }
  }

  #group(): PatternNode {
    const opening = /^\((?:\?(?::|<(?![=!])[^>]*>))?/.exec(this.#source.slice(this.#position))?.[0] as string
    if (opening === "(" && this.#source[this.#position + 1] === "?") {
      const kind = /^\(\?<?[=!]/.test(this.#source.slice(this.#position)) ? "look-around" : "inline flags"
      throw this.#unsupported(kind)
    }
    this.#depth++
    if (this.#depth > deepest) throw new InvalidError(`${this.#at}: groups are nested deeper than ${deepest}`)
    this.#position += opening.length
    const inner = this.#choice()
    this.#position++
    this.#depth--
    return inner
  }

  #escape(): PatternNode {
    const rest = this.#source.slice(this.#position)
    if (rest[1] === "b" || rest[1] === "B") {
      this.#position += 2
      return { kind: "anchor", anchor: rest[1] === "b" ? "boundary" : "noBoundary" }
    }
    if (/^\\[1-9k]/.test(rest)) throw this.#unsupported("a back-reference")
    const escape =
      /^\\(?:u\{[\da-fA-F]+\}|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|u[\da-fA-F]{4}|x[\da-fA-F]{2}|[pP]\{[^}]*\}|c[a-zA-Z]|.)/su.exec(
        rest,
      )?.[0] as string
    return this.#class(this.#position + escape.length)
  }

  /** What the text up to `end` takes is for V8 to say, one character at a time. */
  #class(end: number): PatternNode {
    const source = this.#source.slice(this.#position, end)
    this.#position = end
    return { kind: "character", set: { test: new RegExp(`^${source}$`, this.#flags) }, key: `\\${source}` }
  }

  #classEnd(): number {
    for (let i = this.#position + 1; ; i++) {
      if (this.#source[i] === "]") return i + 1
      if (this.#source[i] === "\\") i++
    }
  }

  #repeated(part: PatternNode): PatternNode {
    const quantifier = /^(?:[*+?]|\{\d+(?:,\d*)?\})/.exec(
      this.#source.slice(this.#position, this.#position + 1024),
    )?.[0]
    if (quantifier === undefined) return part
    this.#position += quantifier.length
    if (this.#peek() === "?") this.#position++
    const [least, most] = bounds(quantifier)
    return { kind: "repeat", part, least, most }
  }

  #peek(): string | undefined {
    return this.#source[this.#position]
  }

  #unsupported(what: string): InvalidError {
    return new InvalidError(
      `${this.#at}: ${what} at character ${this.#position} of ${JSON.stringify(this.#source)} is not supported: patterns are matched in linear time`,
    )
  }
}

function bounds(quantifier: string): readonly [number, number] {
  if (quantifier === "*") return [0, Number.POSITIVE_INFINITY]
  if (quantifier === "+") return [1, Number.POSITIVE_INFINITY]
  if (quantifier === "?") return [0, 1]
  const [least, most] = quantifier.slice(1, -1).split(",")
  if (most === undefined) return [Number(least), Number(least)]
  return [Number(least), most === "" ? Number.POSITIVE_INFINITY : Number(most)]
}
