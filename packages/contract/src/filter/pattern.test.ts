import assert from "node:assert/strict"
import { describe, it } from "node:test"
import fc from "fast-check"
import { parseGlob } from "./glob.ts"
import { PatternMatcher } from "./pattern-matcher.ts"
import { parseRegex } from "./regex-syntax.ts"

function regex(source: string, caseInsensitive: boolean): PatternMatcher {
  return new PatternMatcher(parseRegex(source, { at: "value", caseInsensitive }))
}

const atoms = fc.constantFrom(
  "a",
  "b",
  "k",
  "K",
  "s",
  "é",
  "😀",
  ".",
  "\\d",
  "\\w",
  "\\W",
  "\\s",
  "\\b",
  "\\B",
  "^",
  "$",
  "[ab]",
  "[^a]",
  "[a-k😀]",
  "[^]",
  "[]",
  "\\p{L}",
  "\\P{Lu}",
  "\\u{1F600}",
  "\\ud83d\\ude00",
  "\\x61",
  "\\.",
  "[\\]\\-x]",
  "\\n",
  "\\cJ",
  "\\0",
  "[\\b]",
  "/",
  "-",
  ",",
)
const quantifiers = fc.constantFrom("", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "{0}", "{2,3}?")
const patterns = fc.letrec<{ pattern: string }>((tie) => ({
  pattern: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc
      .tuple(atoms, quantifiers)
      .map(([atom, quantifier]) => (/^(\^|\$|\\b|\\B)$/.test(atom) ? atom : atom + quantifier)),
    fc.array(tie("pattern"), { maxLength: 3 }).map((parts) => parts.join("")),
    fc.array(tie("pattern"), { minLength: 2, maxLength: 3 }).map((parts) => `(?:${parts.join("|")})`),
    fc.tuple(tie("pattern"), quantifiers).map(([inner, quantifier]) => `(${inner})${quantifier}`),
    tie("pattern")
      .map((inner) => `(?<n>${inner})`)
      .filter((source) => source.split("?<n>").length === 2),
  ),
})).pattern
const texts = fc
  .array(
    fc.constantFrom(
      "a",
      "b",
      "k",
      "K",
      "\u212a",
      "s",
      "\u017f",
      "é",
      "😀",
      "1",
      "_",
      " ",
      "\n",
      "\ud83d",
      "\ude00",
      "x",
      "-",
      "]",
      "/",
      ".",
      "\u2028",
    ),
    {
      maxLength: 12,
    },
  )
  .map((parts) => parts.join(""))

describe("a regular expression of a filter", () => {
  it("finds what JavaScript's own finds, with and without regard to case", () => {
    fc.assert(
      fc.property(
        patterns,
        fc.array(texts, { minLength: 1, maxLength: 6 }),
        fc.boolean(),
        (source, samples, caseInsensitive) => {
          let own: RegExp
          try {
            own = new RegExp(source, caseInsensitive ? "iuy" : "uy")
          } catch {
            fc.pre(false)
            return
          }
          const matcher = regex(source, caseInsensitive)
          const program = parseRegex(source, { at: "value", caseInsensitive })
          const forgetful = new PatternMatcher(program, { states: 2, symbols: 2, characters: 2 })
          for (const text of samples) {
            const expected = found(own, text)
            assert.equal(matcher.matches(text), expected, `${source} on ${JSON.stringify(text)}`)
            assert.equal(forgetful.matches(text), expected, `${source} on ${JSON.stringify(text)}, forgetting`)
          }
        },
      ),
      { numRuns: 1500 },
    )
  })

  it("takes time in proportion to the text, where backtracking would take for ever", () => {
    const text = "a".repeat(100_000)
    for (const source of ["^(a+)+$", "^(a|a)*b", "(a*)*c", "(?:a?){40}a{40}b", "(a|b)*a(a|b){12}c"]) {
      const matcher = regex(source, false)
      const began = performance.now()
      assert.equal(matcher.matches(text), source === "^(a+)+$")
      assert.ok(performance.now() - began < 2000, `${source} took ${performance.now() - began} ms`)
    }
  })

  it("remembers a bounded number of states, and is right beyond them", () => {
    const source = "a[ab]{14}c"
    const matcher = regex(source, false)
    const own = new RegExp(source, "u")
    const random = fc.sample(fc.array(fc.constantFrom("a", "b", "c"), { minLength: 3000, maxLength: 3000 }), {
      seed: 7,
      numRuns: 4,
    })
    for (const letters of random) {
      const text = letters.join("")
      assert.equal(matcher.matches(text), own.test(text))
      const without = text.replaceAll("c", "a")
      assert.equal(matcher.matches(without), false)
    }
  })

  it("refuses what linear time cannot do, wrong syntax, and programs that are too large", () => {
    for (const [source, reason] of [
      ["(a)\\1", /back-reference/],
      ["(?<x>a)\\k<x>", /back-reference/],
      ["a(?=b)", /look-around/],
      ["(?<!a)b", /look-around/],
      ["(?<=a)b", /look-around/],
      ["(", /no regular expression/],
      ["a{2,1}", /no regular expression/],
      ["\\q", /no regular expression/],
      ["a{511}b", /too large/],
      ["(?:a{60}){60}", /too large/],
      [`${"(".repeat(33)}a${")".repeat(33)}`, /nested deeper than 32/],
    ] as const)
      assert.throws(() => regex(source, false), { kind: "invalid", message: reason }, source)
    assert.equal(regex("a{510}", false).matches("a".repeat(510)), true)
    assert.equal(regex("(?:){100000}(?:a{0}){9999}b", false).matches("b"), true)
  })
})

/** Tries a sticky expression before each character and at the end: left alone, V8 also looks for empty matches inside a character. */
function found(own: RegExp, text: string): boolean {
  let at = 0
  for (const character of [...text, ""]) {
    own.lastIndex = at
    if (own.test(text)) return true
    at += character.length
  }
  return false
}

describe("a glob of a filter", () => {
  const parts = fc.array(fc.constantFrom("a", "b", "*", "?", "\\*", "\\?", "\\\\", "😀", ".", "[", "\n"), {
    maxLength: 8,
  })

  it("matches the whole text as a plain matcher does", () => {
    fc.assert(
      fc.property(parts, texts, (pattern, text) => {
        const matcher = new PatternMatcher(parseGlob(pattern.join(""), "value"))
        assert.equal(matcher.matches(text), plain(pattern, [...text]))
      }),
      { numRuns: 2000 },
    )
  })

  it("refuses an escape before nothing", () => {
    assert.throws(() => parseGlob("a\\", "value"), { kind: "invalid", message: /^value: glob .* ends with/ })
  })

  it("takes time in proportion to the text", () => {
    const matcher = new PatternMatcher(parseGlob(`${"*a".repeat(100)}*b`, "value"))
    const began = performance.now()
    assert.equal(matcher.matches("a".repeat(100_000)), false)
    assert.ok(performance.now() - began < 2000)
  })
})

function plain(pattern: readonly string[], text: readonly string[]): boolean {
  const [part, ...rest] = pattern
  if (part === undefined) return text.length === 0
  if (part === "*") return plain(rest, text) || (text.length > 0 && plain(pattern, text.slice(1)))
  if (text.length === 0 || (part !== "?" && text[0] !== part.replace("\\", "").padStart(1, "\\"))) return false
  return plain(rest, text.slice(1))
}
