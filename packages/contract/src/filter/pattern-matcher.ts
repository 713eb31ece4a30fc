/**
 * Runs the program of a pattern over a text, in time linear in the text: all places of the program where a match can stand are walked
 * together. Sets of places that were met before are remembered with what follows from them, so that most texts cost one look-up a
 * character; where there are too many sets to remember, the rest of the text is walked without.
 */
import { filterLimits } from "./filter.ts"
import type { Anchor, CharacterSet, PatternProgram } from "./pattern-program.ts"

/** What a matcher remembers at most: sets of places, and kinds of characters. When there are more, all are forgotten. */
export interface PatternMemory {
  readonly states: number
  readonly symbols: number
  readonly characters: number
}

const defaultMemory: PatternMemory = { states: 512, symbols: 512, characters: 4096 }

/** A matcher that had to forget so often remembers no sets any more. */
const mostForgets = 8

/** What stands before a place in the text: its start, a word character, or another. */
type Before = "start" | "word" | "other"

/** A set of places of the program before a character, and what each kind of character leads to. */
interface State {
  readonly places: Uint16Array
  readonly before: Before
  readonly next: (State | undefined)[]
}

/** Characters that no step of the program tells apart. */
interface CharacterKind {
  /** For each set of the program, 1 if it takes them. */
  readonly taken: Uint8Array
  readonly word: boolean
}

/** Whether a pattern occurs in texts. */
export class PatternMatcher {
  /** The longest text, in UTF-16 units, that is matched: beyond, the work has no sensible bound. */
  readonly longestText: number
  /** Of the program. */
  readonly steps: number
  readonly #program: PatternProgram
  readonly #memory: PatternMemory
  readonly #walk: PatternWalk
  readonly #accepted: State = { places: new Uint16Array(), before: "other", next: [] }
  readonly #states = new Map<string, State>()
  readonly #byCharacter = new Map<number, number>()
  readonly #bySignature = new Map<string, number>()
  #kinds: CharacterKind[] = []
  #ascii: (number | undefined)[] = []
  #start: State
  #forgets = 0

  constructor(program: PatternProgram, memory: PatternMemory = defaultMemory) {
    this.#program = program
    this.#memory = memory
    this.#walk = new PatternWalk(program)
    this.steps = program.steps.length
    this.longestText = Math.floor(filterLimits.patternWork / this.steps)
    this.#start = this.#newStart()
  }

  /** Only for a text of at most `longestText`. */
  matches(text: string): boolean {
    let state = this.#start
    if (this.#forgets >= mostForgets) return this.#walkOn(text, 0, state)
    for (let i = 0; i < text.length; i++) {
      const character = characterAt(text, i)
      const symbol = (character < 128 ? this.#ascii[character] : undefined) ?? this.#symbolOf(character)
      let next = state.next[symbol]
      if (next === undefined) {
        next = this.#follow(state, symbol)
        state.next[symbol] = next
        if (this.#isFull()) {
          this.#forget()
          return next === this.#accepted || this.#walkOn(text, i + (character > 0xffff ? 2 : 1), next)
        }
      }
      if (next === this.#accepted) return true
      if (next.places.length === 0) return false
      if (character > 0xffff) i++
      state = next
    }
    return this.#walk.ends(state.places, state.before)
  }

  /** The rest of a text, one set of places after the other. */
  #walkOn(text: string, from: number, { places, before }: State): boolean {
    const walk = this.#walk
    let now = places
    let behind = before
    for (let i = from; i < text.length; i++) {
      const character = characterAt(text, i)
      const kind = this.#kindOf(character)
      const next = walk.follow(now, behind, kind)
      if (next === undefined) return true
      now = next
      behind = kind.word ? "word" : "other"
      if (character > 0xffff) i++
    }
    return walk.ends(now, behind)
  }

  #kindOf(character: number): CharacterKind {
    const symbol = (character < 128 ? this.#ascii[character] : undefined) ?? this.#symbolOf(character)
    const kind = this.#kinds[symbol] as CharacterKind
    if (this.#isFull()) this.#forget()
    return kind
  }

  /** The state behind a character of this kind. */
  #follow(state: State, symbol: number): State {
    const kind = this.#kinds[symbol] as CharacterKind
    const places = this.#walk.follow(state.places, state.before, kind)
    return places === undefined ? this.#accepted : this.#state(places, kind.word ? "word" : "other")
  }

  #state(places: Uint16Array, before: Before): State {
    const sorted = places.slice().sort()
    const key = before + String.fromCharCode(...sorted)
    let state = this.#states.get(key)
    if (state === undefined) {
      state = { places: sorted, before, next: [] }
      this.#states.set(key, state)
    }
    return state
  }

  #symbolOf(character: number): number {
    const known = this.#byCharacter.get(character)
    if (known !== undefined) return known
    const text = String.fromCodePoint(character)
    const taken = Uint8Array.from(this.#program.sets, (set) => (takes(set, character, text) ? 1 : 0))
    const word = this.#program.word.test(text)
    const signature = `${word}${taken.join("")}`
    let symbol = this.#bySignature.get(signature)
    if (symbol === undefined) {
      symbol = this.#kinds.push({ taken, word }) - 1
      this.#bySignature.set(signature, symbol)
    }
    if (this.#byCharacter.size >= this.#memory.characters) this.#byCharacter.clear()
    this.#byCharacter.set(character, symbol)
    if (character < 128) this.#ascii[character] = symbol
    return symbol
  }

  #isFull(): boolean {
    return this.#states.size > this.#memory.states || this.#kinds.length > this.#memory.symbols
  }

  #forget(): void {
    this.#forgets++
    this.#states.clear()
    this.#byCharacter.clear()
    this.#bySignature.clear()
    this.#kinds = []
    this.#ascii = []
    this.#start = this.#newStart()
  }

  #newStart(): State {
    return this.#state(Uint16Array.of(0), "start")
  }
}

/** What a step does, as a number, so that walking looks at arrays of numbers alone. */
const take = 0
const fork = 1
const anchor = 2
const accept = 3

/** Steps of a program over sets of places. */
class PatternWalk {
  /** Whether a match begins only at the start of the text. */
  readonly #anchored: boolean
  readonly #kinds: Uint8Array
  /** Of a `take` its set, of a `fork` where it goes first, of an `anchor` its number. */
  readonly #first: Uint16Array
  readonly #second: Uint16Array
  readonly #marks: Uint32Array
  readonly #open: Uint16Array
  readonly #takes: Uint16Array
  #takeCount = 0
  #mark = 0

  constructor({ steps }: PatternProgram) {
    const { length } = steps
    const [first] = steps
    this.#anchored = first?.kind === "anchor" && first.anchor === "start"
    this.#kinds = Uint8Array.from(steps, ({ kind }) => ({ take, fork, anchor, accept })[kind])
    this.#first = Uint16Array.from(steps, (step) => {
      if (step.kind === "take") return step.set
      if (step.kind === "fork") return step.first
      return step.kind === "anchor" ? anchors.indexOf(step.anchor) : 0
    })
    this.#second = Uint16Array.from(steps, (step) => (step.kind === "fork" ? step.second : 0))
    this.#marks = new Uint32Array(length)
    // Each step is opened at most once for itself and twice by a fork before it.
    this.#open = new Uint16Array(length * 3 + 1)
    this.#takes = new Uint16Array(length)
  }

  /** The places behind a character; `undefined` when a match has ended before it. */
  follow(places: Uint16Array, before: Before, { word, taken }: CharacterKind): Uint16Array | undefined {
    if (this.#reach(places, before, word ? "word" : "other")) return undefined
    const next = new Uint16Array(this.#takeCount + 1)
    let count = 0
    for (let i = 0; i < this.#takeCount; i++) {
      const place = this.#takes[i] as number
      if (taken[this.#first[place] as number] === 1) next[count++] = place + 1
    }
    // A match can also begin behind the character.
    if (!this.#anchored) next[count++] = 0
    return next.subarray(0, count)
  }

  /** Whether a match ends where the text ends. */
  ends(places: Uint16Array, before: Before): boolean {
    return this.#reach(places, before, undefined)
  }

  /** Finds the places that take a character, from these without taking one. Answers whether the end of the program is among them. */
  #reach(places: Uint16Array, before: Before, after: "word" | "other" | undefined): boolean {
    const kinds = this.#kinds
    const firsts = this.#first
    const marks = this.#marks
    const open = this.#open
    // The marks begin anew before they overflow.
    if (this.#mark === 0xffff_ffff) {
      marks.fill(0)
      this.#mark = 0
    }
    const mark = ++this.#mark
    let takeCount = 0
    for (let i = 0; i < places.length; i++) {
      let count = 0
      open[count++] = places[i] as number
      while (count > 0) {
        const place = open[--count] as number
        if (marks[place] === mark) continue
        marks[place] = mark
        const kind = kinds[place]
        if (kind === take) this.#takes[takeCount++] = place
        else if (kind === fork) {
          open[count++] = this.#second[place] as number
          open[count++] = firsts[place] as number
        } else if (kind === accept) return true
        else if (holds(anchors[firsts[place] as number] as Anchor, before, after)) open[count++] = place + 1
      }
    }
    this.#takeCount = takeCount
    return false
  }
}

const anchors: readonly Anchor[] = ["start", "end", "boundary", "noBoundary"]

/** The code point at a position; a surrogate that is alone stands for itself. */
function characterAt(text: string, position: number): number {
  const unit = text.charCodeAt(position)
  return unit >= 0xd800 && unit < 0xdc00 ? (text.codePointAt(position) as number) : unit
}

function takes(set: CharacterSet, character: number, text: string): boolean {
  if ("codePoint" in set) return set.codePoint === character
  return "any" in set || set.test.test(text)
}

function holds(anchor: Anchor, before: Before, after: "word" | "other" | undefined): boolean {
  switch (anchor) {
    case "start":
      return before === "start"
    case "end":
      return after === undefined
    case "boundary":
      return (before === "word") !== (after === "word")
    case "noBoundary":
      return (before === "word") === (after === "word")
  }
}
