import type { Clock } from "@millrace/runtime"

/** What happened in a simulation, a line an event. The same seed writes the same lines, byte for byte. */
export class Trace {
  readonly lines: string[] = []
  readonly #clock: Clock
  /** Off: nothing is written, which is most of the speed of a run over many seeds. */
  readonly isOn: boolean

  constructor(clock: Clock, isOn: boolean) {
    this.#clock = clock
    this.isOn = isOn
  }

  /** @param who `client`, `backend`, `store` or `world`. */
  note(who: string, text: string): void {
    if (!this.isOn) return
    const at = this.#clock.monotonicMs().toFixed(3).padStart(12)
    this.lines.push(`${at}  ${who.padEnd(8)} ${text}`)
  }
}
