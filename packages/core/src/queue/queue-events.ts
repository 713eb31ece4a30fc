import { MillraceError } from "@millrace/contract"
import { tellObserved } from "../handler/observed.ts"
import type { QueueConsumerEvents, QueueConsumerStatistics } from "./queue-consumer.ts"

/** The counters of a consumer, which change. */
export type QueueCounts = {
  -readonly [K in Exclude<keyof QueueConsumerStatistics, "buffered" | "prefetch" | "running">]: number
}

/** The listeners and the counters of one queue consumer. A listener that fails is reported, and hinders neither the others nor the consumer. */
export class QueueEvents {
  readonly counts: QueueCounts = {
    received: 0,
    dropped: 0,
    released: 0,
    extended: 0,
    skipped: 0,
    failed: 0,
    late: 0,
    exhausted: 0,
  }
  readonly #listeners = new Set<{ readonly listener: Partial<QueueConsumerEvents> }>()
  readonly #failed: (error: MillraceError) => void

  constructor(failed: (error: MillraceError) => void) {
    this.#failed = failed
  }

  add(listener: Partial<QueueConsumerEvents>): Disposable {
    const entry = { listener }
    this.#listeners.add(entry)
    return { [Symbol.dispose]: () => void this.#listeners.delete(entry) }
  }

  tell<K extends keyof QueueConsumerEvents>(event: K, value: Parameters<QueueConsumerEvents[K]>[0]): void {
    for (const { listener } of [...this.#listeners]) {
      tellObserved(
        () => listener[event]?.(value as never),
        (cause) => this.#report(event, cause),
      )
    }
  }

  #report(event: keyof QueueConsumerEvents, cause: unknown): void {
    this.#failed(new MillraceError("handler", `the listener for "${event}" failed: ${String(cause)}`, { cause }))
  }
}
