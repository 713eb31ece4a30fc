import type { SendCall } from "./send-call.ts"

/** The calls that have not settled, oldest first. The links are fields of the calls, so that a call costs no entry of its own. */
export class CallList implements Iterable<SendCall> {
  #first: SendCall | undefined
  #last: SendCall | undefined
  #size = 0

  get size(): number {
    return this.#size
  }

  add(call: SendCall): void {
    call.older = this.#last
    if (this.#last === undefined) this.#first = call
    else this.#last.newer = call
    this.#last = call
    this.#size++
  }

  /** Takes a call out that is in the list. */
  remove(call: SendCall): void {
    const { older, newer } = call
    if (older === undefined) this.#first = newer
    else older.newer = newer
    if (newer === undefined) this.#last = older
    else newer.older = older
    call.older = undefined
    call.newer = undefined
    this.#size--
  }

  *[Symbol.iterator](): Iterator<SendCall> {
    for (let call = this.#first; call !== undefined; call = call.newer) yield call
  }
}
