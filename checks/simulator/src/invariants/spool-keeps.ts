import { numberIn } from "../workload/history.ts"
import type { Evidence, Invariant } from "./invariant.ts"
import type { Occurrence } from "./occurrences.ts"

/** What a spool has accepted is stored, or was told to the program, or lies among its refused records in the end. */
export const spoolKeeps: Invariant = {
  name: "a spool keeps what it accepted",
  *check({ program, occurrences }) {
    const held = new Set(program.aside)
    for (const { error } of program.failures) for (const { payload } of error.unconfirmed) held.add(numberIn(payload))
    for (const call of program.calls) {
      if (!call.lane.isSpooled || call.state !== "done") continue
      for (const { number } of call.records) {
        if (held.has(number) || occurrences.of(number).length > 0) continue
        yield `record #${number} of call ${call.id} was accepted, is stored nowhere, and nobody was told of it`
      }
    }
  },
}

/** What was told, and taken, is told no second time, unless the process was killed before that was written down. */
export const toldOnce: Invariant = {
  name: "a spool tells once",
  *check({ program }) {
    const told = new Set<number>()
    for (const { error, lane, mayReturn } of program.failures) {
      if (!lane.isSpooled) continue
      for (const { payload } of error.unconfirmed) {
        const number = numberIn(payload)
        if (told.has(number)) yield `record #${number} was told a second time (${error.message})`
        else if (!mayReturn) told.add(number)
      }
    }
  },
}

/** No more records of a spool lie twice than it has said may do. A backend that forgot its producers says nothing, and doubles. */
export const doubledIsCounted: Invariant = {
  name: "doubled is counted",
  *check(evidence) {
    const { program } = evidence
    if (!program.lanes.some(({ isSpooled }) => isSpooled)) return
    let doubled = 0
    let last = -1
    for (const { number, lane, isRefused } of program.records) {
      // What was refused once may be told, and sent, again by the next process.
      if (!lane.isSpooled || isRefused) continue
      const extra = extraPlaces(number, evidence)
      doubled += extra
      if (extra > 0) last = number
    }
    if (doubled <= program.possiblyDoubled) return
    yield `${doubled} times a record lies twice, as #${last} does; ${program.possiblyDoubled} may be doubled, it was said`
  },
}

function extraPlaces(number: number, { occurrences, manifest }: Evidence): number {
  const places = occurrences.of(number)
  let extra = 0
  for (let i = 1; i < places.length; i++) {
    const again = places[i] as Occurrence
    const first = places
      .slice(0, i)
      .find(({ history }) => history.topic === again.history.topic && history.lineage === again.history.lineage)
    if (first === undefined) continue
    // A purge begins another history of the same topic, which takes what was on its way to the old one: nobody can tell them apart.
    if (!first.history.lineage.endsWith(".0")) continue
    const isForgotten = first.history.log.forgottenAt.some((at) => at > first.offset && at <= again.offset)
    if (manifest.append.dedup !== "sequence" || !isForgotten) extra++
  }
  return extra
}
