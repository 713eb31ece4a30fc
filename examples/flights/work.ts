/**
 * Flights are published. Workers count them at least once, processors enter them into the ledger exactly once; one of each is killed in
 * mid-way and another takes over, until everything is done.
 */
import { setTimeout as wait } from "node:timers/promises"
import type { Producer } from "millrace"
import { Crew } from "./crew.ts"
import type { Flight } from "./flights.ts"
import type { JobOptions, JobResult } from "./job.ts"
import type { LedgerReader } from "./ledger.ts"
import type { Bar } from "./progress.ts"
import { count, Progress } from "./progress.ts"
import { publishFlights } from "./publish.ts"
import type { Snapshot } from "./snapshot.ts"
import type { WorkerProcess } from "./worker-process.ts"

/** Where the work stands when it begins. */
export interface Stand {
  readonly flights: readonly Flight[]
  /** Not published yet. */
  readonly left: readonly Flight[]
  readonly before: ReadonlyMap<number, Snapshot>
  /** Absent where the backend has no transactions: then there are no processors. */
  readonly ledger: LedgerReader | undefined
}

/** How often the ledger is looked at, in ms. */
const ledgerEveryMs = 20

/** One run of workers and processors. */
export class Work {
  readonly #options: JobOptions
  readonly #whole: number
  readonly #left: readonly Flight[]
  /** The offset up to which each partition is counted in a stored snapshot. */
  readonly #stored: Map<number, bigint>
  readonly #ledger: LedgerReader | undefined
  readonly #workers: Crew
  readonly #processors: Crew | undefined
  readonly #failed = new AbortController()
  #progress: Progress | undefined
  #accepted: number

  /** Starts two workers and two processors. */
  constructor({ flights, left, before, ledger }: Stand, options: JobOptions) {
    this.#options = options
    this.#whole = flights.length
    this.#left = left
    this.#stored = new Map([...before].map(([partition, { upTo }]) => [partition, upTo]))
    this.#ledger = ledger
    this.#accepted = flights.length - left.length
    const { place, sessionTimeoutMs } = options
    const task = { url: place.url, stream: place.stream, sessionTimeoutMs }
    const countedAt = (this.#counted + this.#whole) / 2
    this.#workers = new Crew("worker", task, {
      isMidway: ({ unsaved }) => this.#isMidway(unsaved, countedAt),
      killed: (worker) => this.#tellKilled(worker, `${count(this.#counted)} flights are counted`),
      stored: (partition, upTo) => this.#store(partition, upTo),
      failed: this.#fail,
    })
    for (const [partition, upTo] of this.#stored) this.#workers.deliveries.startAt(partition, upTo + 1n)
    if (ledger === undefined) return
    const enteredAt = (ledger.flights + this.#whole) / 2
    this.#processors = new Crew("processor", task, {
      isMidway: () => ledger.flights >= enteredAt,
      killed: (processor) => this.#tellKilled(processor, `${count(ledger.flights)} flights are entered`),
      stored: () => {},
      failed: this.#fail,
    })
  }

  /** Publishes what is left, and waits until everything is done. @throws Error when a process fails, or the time is over */
  async run(feed: Producer): Promise<NonNullable<JobResult["work"]>> {
    const { perSecond, limitMs, signal: stop } = this.#options
    const crews = this.#processors === undefined ? [this.#workers] : [this.#workers, this.#processors]
    const signal = AbortSignal.any([this.#failed.signal, stop, AbortSignal.timeout(limitMs)])
    let beganAt = 0
    let publishedAt = 0
    let countedAt = 0
    let entered: Promise<void> | undefined
    try {
      await until(() => crews.every((crew) => crew.isAtWork), signal)
      this.#progress = new Progress(process.stdout, () => this.#bars())
      const onAccepted = (more: number): void => {
        this.#accepted += more
      }
      beganAt = performance.now()
      entered = this.#followLedger(signal).catch(this.#fail)
      await publishFlights(feed, this.#left, { perSecond, signal, onAccepted })
      publishedAt = performance.now()
      await until(() => this.#counted === this.#whole, signal)
      countedAt = performance.now()
      await entered
      for (const crew of crews) crew.stop()
      await until(() => crews.every((crew) => crew.isGone), signal)
    } catch (error) {
      if (!signal.aborted) throw error
      const stand = this.#bars().map(({ name, done }) => `${name} ${done}`)
      throw new Error(`the work stopped at: ${stand.join(", ")}`, { cause: signal.reason })
    } finally {
      for (const crew of crews) crew.kill()
      this.#failed.abort()
      await entered
      this.#progress?.finish()
    }
    const { takeover } = this.#workers
    return {
      publishedPerSecond: (this.#left.length / (publishedAt - beganAt)) * 1_000,
      tookMs: countedAt - beganAt,
      repeated: this.#workers.deliveries.repeated,
      ...(this.#processors === undefined ? {} : { handledAgain: this.#processors.deliveries.repeated }),
      ...(takeover === undefined ? {} : { takeover: takeover.times }),
    }
  }

  /** Until each flight has an entry. */
  async #followLedger(signal: AbortSignal): Promise<void> {
    if (this.#ledger === undefined) return
    for (;;) {
      await this.#ledger.catchUp()
      if (this.#ledger.flights >= this.#whole) return
      await wait(ledgerEveryMs, undefined, { signal })
    }
  }

  get #counted(): number {
    return [...this.#stored.values()].reduce((sum, upTo) => sum + Number(upTo) + 1, 0)
  }

  #store(partition: number, upTo: bigint): void {
    if (upTo > (this.#stored.get(partition) ?? -1n)) this.#stored.set(partition, upTo)
  }

  /** Half is done, and a good part of what this worker holds is in no snapshot yet; or it is getting late for that. */
  #isMidway(unsaved: number, countedAt: number): boolean {
    return this.#counted >= (unsaved >= 50 ? countedAt : (countedAt + this.#whole) / 2)
  }

  #tellKilled({ name }: WorkerProcess, when: string): void {
    this.#progress?.say(`${name.charAt(0).toUpperCase()}${name.slice(1)} is killed when ${when}.`)
  }

  readonly #fail = (error: unknown): void => this.#failed.abort(error)

  #bars(): Bar[] {
    const whole = this.#whole
    const members = (crew: Crew): Bar[] => crew.members.map(({ name, delivered }) => ({ name, done: delivered, whole }))
    const bars = [
      { name: "accepted", done: this.#accepted, whole },
      ...members(this.#workers),
      { name: "counted", done: this.#counted, whole },
    ]
    if (this.#processors === undefined || this.#ledger === undefined) return bars
    return [...bars, ...members(this.#processors), { name: "entered", done: this.#ledger.flights, whole }]
  }
}

/** Waits for a condition that reports of the processes change. */
async function until(condition: () => boolean, signal: AbortSignal): Promise<void> {
  while (!condition()) await wait(5, undefined, { signal })
}
