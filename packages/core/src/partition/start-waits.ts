import { ClosedError, type MillraceError } from "@millrace/contract"
import type { Lane } from "./lane.ts"

/** Who waits for partitions to have a position. */
export class StartWaits {
  readonly #waiting = new Map<Lane, (error: MillraceError | undefined) => void>()

  /** Settles when the partition's start is found, or with what it failed with. */
  of(lane: Lane): Promise<MillraceError | undefined> {
    return new Promise((resolve) => this.#waiting.set(lane, resolve))
  }

  tell(lane: Lane, error: MillraceError | undefined): void {
    this.#waiting.get(lane)?.(error)
    this.#waiting.delete(lane)
  }

  /** The consumer is shut down: all who still wait are told so. */
  end(): void {
    for (const lane of [...this.#waiting.keys()]) this.tell(lane, endedBeforeStart())
  }
}

/** What those hear for whom no start comes any more. */
export function endedBeforeStart(): ClosedError {
  return new ClosedError("the consumer was shut down before it knew where to start")
}
