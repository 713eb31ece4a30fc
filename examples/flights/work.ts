/** The workers at their work: flights are published, one worker is killed in mid-way, the other takes over, until everything is counted. */
import { setTimeout as wait } from "node:timers/promises"
import type { Producer } from "millrace"
import { Deliveries } from "./deliveries.ts"
import type { Flight } from "./flights.ts"
import type { JobOptions, JobResult } from "./job.ts"
import type { Bar } from "./progress.ts"
import { count, Progress } from "./progress.ts"
import { publishFlights } from "./publish.ts"
import type { Snapshot } from "./snapshot.ts"
import { Takeover } from "./takeover.ts"
import type { WorkerReport } from "./worker-process.ts"
import { WorkerProcess } from "./worker-process.ts"

/** Where the work stands when it begins. */
export interface Stand {
  readonly flights: readonly Flight[]
  /** Not published yet. */
  readonly left: readonly Flight[]
  readonly before: ReadonlyMap<number, Snapshot>
}

/** One run of the workers. */
export class Work {
  readonly #options: JobOptions
  readonly #flights: readonly Flight[]
  readonly #left: readonly Flight[]
  /** The offset up to which each partition is counted in a stored snapshot. */
  readonly #stored: Map<number, bigint>
  readonly #deliveries = new Deliveries()
  readonly #killAt: number
  readonly #workers: readonly WorkerProcess[]
  readonly #gone = new Set<WorkerProcess>()
  readonly #failed = new AbortController()
  #progress: Progress | undefined
  #accepted: number
  #takeover: Takeover | undefined
  #stopping = false

  /** Starts two workers. */
  constructor({ flights, left, before }: Stand, options: JobOptions) {
    this.#options = options
    this.#flights = flights
    this.#left = left
    this.#stored = new Map([...before].map(([partition, { upTo }]) => [partition, upTo]))
    for (const [partition, upTo] of this.#stored) this.#deliveries.startAt(partition, upTo + 1n)
    this.#accepted = flights.length - left.length
    this.#killAt = (this.#counted + flights.length) / 2
    const { place, sessionTimeoutMs } = options
    const task = { url: place.url, stream: place.stream, sessionTimeoutMs }
    this.#workers = [1, 2].map(
      (number) => new WorkerProcess(number, task, (worker, report) => this.#hear(worker, report)),
    )
    for (const worker of this.#workers) worker.exited.then((code) => this.#bury(worker, code), this.#fail)
  }

  /** Publishes what is left, and waits until everything is counted. @throws Error when a worker fails, or the time is over */
  async run(feed: Producer): Promise<NonNullable<JobResult["work"]>> {
    const { perSecond, limitMs, signal: stop } = this.#options
    const signal = AbortSignal.any([this.#failed.signal, stop, AbortSignal.timeout(limitMs)])
    let beganAt = 0
    let publishedAt = 0
    let countedAt = 0
    try {
      await until(() => this.#workers.every(({ partitions }) => partitions.size > 0), signal)
      this.#progress = new Progress(process.stdout, () => this.#bars())
      const onAccepted = (more: number): void => {
        this.#accepted += more
      }
      beganAt = performance.now()
      await publishFlights(feed, this.#left, { perSecond, signal, onAccepted })
      publishedAt = performance.now()
      await until(() => this.#counted === this.#flights.length, signal)
      countedAt = performance.now()
      this.#stopping = true
      for (const worker of this.#workers) worker.stop()
      await until(() => this.#workers.every((worker) => this.#gone.has(worker)), signal)
    } catch (error) {
      if (!signal.aborted) throw error
      const stand = this.#bars().map(({ name, done }) => `${name} ${done}`)
      throw new Error(`the work stopped at: ${stand.join(", ")}`, { cause: signal.reason })
    } finally {
      this.#stopping = true
      for (const worker of this.#workers) worker.kill()
      this.#progress?.finish()
    }
    return {
      publishedPerSecond: (this.#left.length / (publishedAt - beganAt)) * 1_000,
      tookMs: countedAt - beganAt,
      repeated: this.#deliveries.repeated,
      ...(this.#takeover === undefined ? {} : { takeover: this.#takeover.times }),
    }
  }

  get #counted(): number {
    return [...this.#stored.values()].reduce((sum, upTo) => sum + Number(upTo) + 1, 0)
  }

  #hear(worker: WorkerProcess, report: WorkerReport): void {
    if (report.kind === "assigned") this.#takeover?.assigned(worker)
    else if (report.kind === "stored") this.#store(report.partition, report.upTo)
    else if (report.kind === "delivered") this.#deliver(worker, report.partition, report.offset)
  }

  #store(partition: number, upTo: bigint): void {
    if (upTo > (this.#stored.get(partition) ?? -1n)) this.#stored.set(partition, upTo)
  }

  #deliver(worker: WorkerProcess, partition: number, offset: bigint): void {
    this.#deliveries.add(partition, offset)
    this.#takeover?.delivered(worker, partition)
    if (worker.number === 1 && worker.partitions.size > 0 && this.#takeover === undefined && this.#isMidway(worker))
      this.#kill(worker)
  }

  /** Half is done, and a good part of what this worker holds is in no snapshot yet; or it is getting late for that. */
  #isMidway({ unsaved }: WorkerProcess): boolean {
    const whole = this.#flights.length
    return this.#counted >= (unsaved >= 50 ? this.#killAt : (this.#killAt + whole) / 2)
  }

  #kill(worker: WorkerProcess): void {
    worker.kill()
    this.#takeover = new Takeover(worker, worker.partitions)
    this.#progress?.say(`Worker ${worker.number} is killed when ${count(this.#counted)} flights are counted.`)
  }

  #bury(worker: WorkerProcess, code: number | undefined): void {
    this.#gone.add(worker)
    const wasKilled = code === undefined && worker.number === 1 && this.#takeover !== undefined
    if (wasKilled || (this.#stopping && code === 0)) return
    const how = code === undefined ? "by a signal" : `with exit code ${code}`
    this.#fail(new Error(`worker ${worker.number} ended ${how}`))
  }

  readonly #fail = (error: unknown): void => this.#failed.abort(error)

  #bars(): Bar[] {
    const whole = this.#flights.length
    return [
      { name: "accepted", done: this.#accepted, whole },
      ...this.#workers.map(({ number, delivered }) => ({ name: `worker ${number}`, done: delivered, whole })),
      { name: "counted", done: this.#counted, whole },
    ]
  }
}

/** Waits for a condition that the workers' reports change. */
async function until(condition: () => boolean, signal: AbortSignal): Promise<void> {
  while (!condition()) await wait(5, undefined, { signal })
}
