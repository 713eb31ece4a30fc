/** What queue workers that are killed work on, and the account of what they were given and have acknowledged. */

export const workTopic = "work"
export const workQueue = "workers"
export const partitions = 2

interface Account {
  /** The numbers of the deliveries that reached a worker. */
  readonly given: Set<number>
  /** The delivery whose acknowledgement was confirmed. */
  acknowledged: number | undefined
}

/** Takes what workers report, in any order between them. */
export class WorkLedger {
  readonly #accounts = new Map<string, Account>()
  readonly #problems: string[] = []

  /** @param words `h` or `a`, partition, offset, deliveries */
  take([word, partition, offset, count]: readonly string[]): void {
    const place = `${partition}/${offset}`
    const deliveries = Number(count)
    const account = this.#accounts.get(place) ?? { given: new Set(), acknowledged: undefined }
    this.#accounts.set(place, account)
    if (word === "a") {
      if (account.acknowledged !== undefined) this.#problems.push(`${place} was acknowledged twice`)
      account.acknowledged = deliveries
      return
    }
    if (account.given.has(deliveries)) this.#problems.push(`delivery ${deliveries} of ${place} went to two`)
    account.given.add(deliveries)
  }

  /** Messages that came to workers more than once. */
  get repeated(): number {
    return [...this.#accounts.values()].filter(({ given }) => given.size > 1).length
  }

  /** Acknowledgements that a worker knew to be confirmed. */
  get acknowledged(): number {
    return [...this.#accounts.values()].filter(({ acknowledged }) => acknowledged !== undefined).length
  }

  /**
   * What is wrong when all is done.
   * @param ends The end of each partition: everything below was sent.
   */
  problems(ends: readonly bigint[]): string[] {
    const problems = [...this.#problems]
    for (const [place, { given, acknowledged }] of this.#accounts) {
      const later = [...given].filter((number) => acknowledged !== undefined && number > acknowledged)
      if (later.length > 0)
        problems.push(`${place} came again as ${later} behind its acknowledged delivery ${acknowledged}`)
    }
    for (const [partition, end] of ends.entries()) {
      for (let offset = 0n; offset < end; offset++) {
        const place = `${partition}/${offset}`
        if (!this.#accounts.has(place)) problems.push(`${place} came to nobody`)
      }
    }
    return problems
  }
}
