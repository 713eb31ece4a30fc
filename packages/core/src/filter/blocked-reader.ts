import type { LogReader, MillraceError, PartitionRead, ReadLimits, ReadPosition, TopicName } from "@millrace/contract"

/**
 * A reader of which some topics may not be read: each of their partitions is answered with the error that says why, once for each time it
 * is given a position, as any partition that fails.
 */
export class BlockedReader implements LogReader {
  readonly #reader: LogReader
  readonly #errorOf: (topic: TopicName) => MillraceError | undefined
  #refusals: PartitionRead[] = []
  /** The poll of the reader underneath. It is never abandoned: a call that answers refusals leaves it to the next one. */
  #polling: Promise<PartitionRead[]> | undefined
  #wake: (() => void) | undefined
  #closed = false

  constructor(reader: LogReader, errorOf: (topic: TopicName) => MillraceError | undefined) {
    this.#reader = reader
    this.#errorOf = errorOf
  }

  set(positions: readonly ReadPosition[]): void {
    const open: ReadPosition[] = []
    this.#refusals = []
    for (const position of positions) {
      const error = this.#errorOf(position)
      const { stream, topic, partition } = position
      if (error === undefined) open.push(position)
      else this.#refusals.push({ stream, topic, partition, error })
    }
    this.#reader.set(open)
    if (this.#refusals.length > 0) this.#wake?.()
  }

  async next(limits: ReadLimits): Promise<PartitionRead[]> {
    if (this.#closed) return []
    if (this.#refusals.length === 0) {
      const polling = this.#poll(limits)
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve
      })
      try {
        const answer = await Promise.race([polling, woken])
        if (answer !== undefined) return answer
      } finally {
        this.#wake = undefined
      }
    }
    const refusals = this.#refusals
    this.#refusals = []
    return refusals
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#wake?.()
    await this.#reader.close()
  }

  #poll(limits: ReadLimits): Promise<PartitionRead[]> {
    if (this.#polling !== undefined) return this.#polling
    const polling = this.#reader.next(limits).finally(() => {
      this.#polling = undefined
    })
    this.#polling = polling
    // A call that was woken has left it: the next one gets the failure, or the reader is closed by then.
    polling.catch(() => {})
    return polling
  }
}
