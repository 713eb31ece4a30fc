import type { FaultyBackend } from "./backend/faulty-backend.ts"
import type { SimProgram } from "./sim-program.ts"
import type { SimulationFrame } from "./simulation-frame.ts"
import type { Trace } from "./trace.ts"

/** The books of a simulation of programs: what they say and what the backend has done come together here. */
export abstract class ProgramDesk {
  readonly #frame: SimulationFrame
  #backend: FaultyBackend | undefined

  constructor(frame: SimulationFrame) {
    this.#frame = frame
  }

  /** To be told once, before anything happens: the backend itself is made with its desk. */
  attach(backend: FaultyBackend): void {
    this.#backend = backend
  }

  note(program: SimProgram, text: string): void {
    this.#frame.note(program, text)
  }

  violate(invariant: string, text: string): void {
    this.#frame.violate(invariant, text)
  }

  protected get trace(): Trace {
    return this.#frame.trace
  }

  protected get backend(): FaultyBackend | undefined {
    return this.#backend
  }
}
