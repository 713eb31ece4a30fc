/**
 * The program of a pattern: steps that a set of positions walks in parallel (Thompson's construction), so that matching never goes back
 * in the text.
 */
import { InvalidError } from "../error.ts"
import { filterLimits } from "./filter.ts"

/** Which characters a step takes: one code point, any, or what a class of JavaScript's own syntax takes. */
export type CharacterSet = { readonly codePoint: number } | { readonly any: true } | { readonly test: RegExp }

/** A place in the text: its start, its end, a boundary between word characters and others, or none. */
export type Anchor = "start" | "end" | "boundary" | "noBoundary"

/** One step. `take` goes on behind a character; the others take none. */
export type Step =
  | { readonly kind: "take"; readonly set: number }
  | { readonly kind: "fork"; first: number; second: number }
  | { readonly kind: "anchor"; readonly anchor: Anchor }
  | { readonly kind: "accept" }

/** Steps run in order from the first; `fork` goes to two places. */
export interface PatternProgram {
  readonly steps: readonly Step[]
  readonly sets: readonly CharacterSet[]
  /** What `\w` takes under the pattern's flags. */
  readonly word: RegExp
}

/** What a pattern is made of. */
export type PatternNode =
  | { readonly kind: "character"; readonly set: CharacterSet; readonly key: string }
  | { readonly kind: "anchor"; readonly anchor: Anchor }
  | { readonly kind: "sequence"; readonly parts: readonly PatternNode[] }
  | { readonly kind: "choice"; readonly parts: readonly PatternNode[] }
  | { readonly kind: "repeat"; readonly part: PatternNode; readonly least: number; readonly most: number }

/**
 * Writes the steps of a pattern. Repetitions are written out.
 * @param at What to call the pattern in an error.
 * @throws InvalidError for more than 512 steps
 */
export function buildProgram(
  root: PatternNode,
  { at, word }: { readonly at: string; readonly word: RegExp },
): PatternProgram {
  const steps: Step[] = []
  const sets: CharacterSet[] = []
  const setNumbers = new Map<string, number>()
  const add = (step: Step): void => {
    if (steps.length >= filterLimits.patternSteps)
      throw new InvalidError(
        `${at}: the pattern is too large: at most ${filterLimits.patternSteps} steps are allowed, with its repetitions written out`,
      )
    steps.push(step)
  }
  const fork = (): Step & { kind: "fork" } => {
    const step: Step = { kind: "fork", first: steps.length + 1, second: 0 }
    add(step)
    return step
  }
  const write = (node: PatternNode): void => {
    switch (node.kind) {
      case "character": {
        let set = setNumbers.get(node.key)
        if (set === undefined) {
          set = sets.push(node.set) - 1
          setNumbers.set(node.key, set)
        }
        add({ kind: "take", set })
        return
      }
      case "anchor":
        add({ kind: "anchor", anchor: node.anchor })
        return
      case "sequence":
        for (const part of node.parts) write(part)
        return
      case "choice": {
        const exits: (Step & { kind: "fork" })[] = []
        node.parts.forEach((part, i) => {
          const last = i === node.parts.length - 1
          const step = last ? undefined : fork()
          write(part)
          if (last) return
          exits.push(fork())
          ;(step as Step & { kind: "fork" }).second = steps.length
        })
        for (const exit of exits) exit.first = exit.second = steps.length
        return
      }
      case "repeat":
        writeRepeat(node)
    }
  }
  const writeRepeat = ({ part, least, most }: PatternNode & { kind: "repeat" }): void => {
    if (isEmpty(part)) return
    for (let i = 0; i < least; i++) write(part)
    if (most === Number.POSITIVE_INFINITY) {
      const enter = fork()
      write(part)
      const back = fork()
      back.first = steps.indexOf(enter)
      back.second = enter.second = steps.length
      return
    }
    const exits: (Step & { kind: "fork" })[] = []
    for (let i = least; i < most; i++) {
      exits.push(fork())
      write(part)
    }
    for (const exit of exits) exit.second = steps.length
  }
  write(root)
  add({ kind: "accept" })
  return { steps, sets, word }
}

/** Whether it writes no step at all, so that no count of repetitions is stopped by the limit of steps. */
function isEmpty(node: PatternNode): boolean {
  if (node.kind === "sequence") return node.parts.every(isEmpty)
  if (node.kind === "repeat") return node.most === 0 || isEmpty(node.part)
  return false
}
