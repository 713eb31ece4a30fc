import { ClosedError, type ConnectionChange, type Session, TimeoutError } from "@millrace/contract"
import type { Clock, Random, Timer } from "@millrace/runtime"
import { diagnostics, type StatisticsFailed } from "./diagnostics.ts"
import type { ProducerRegistry } from "./producer-registry.ts"
import { encodeObservation } from "./producer-report.ts"
import { ReportWriter } from "./report-topic.ts"
import { type ReporterCommand, type ReporterEvent, ReporterMachine } from "./statistics-reporter.machine.ts"
import { expiryIntervals, type StatisticsSettings } from "./statistics-settings.ts"

/** How the observer's own connection is opened. */
export interface ObserveOptions {
  readonly timeoutMs: number
  readonly signal: AbortSignal
  readonly onConnection: (change: ConnectionChange) => void
}

/** What a reporter works with. */
export interface ReporterParts {
  readonly clock: Clock
  readonly random: Random
  readonly producers: ProducerRegistry
  readonly settings: StatisticsSettings
  /** The client's own session, for backends in this process. */
  readonly session: Session
  /** Opens a connection of the reporter's own, which it closes; absent: `session` serves. */
  readonly observe: ((options: ObserveOptions) => Promise<Session>) | undefined
}

/** For connecting, and again for sending, in ms. */
const stepTimeoutMs = 3000

/**
 * Reports what the live producers of a client did, at intervals, over a connection of its own where the backend is remote. Never in the
 * way of a publish: a failure is told on the channel `millrace:statistics.failed` and goes no further. Nothing is opened or made on the
 * backend before a producer that has sent something is due to be reported; the connection is closed when no producer is left.
 */
export class StatisticsReporter {
  readonly #parts: ReporterParts
  readonly #machine: ReporterMachine
  #timer: Timer | undefined
  #connection: Connection | undefined
  #report: Promise<void> | undefined
  /** A write that was given up at its deadline and has not settled: no other is begun before it has. */
  #stray: Promise<void> | undefined
  #ending: Promise<void> | undefined
  /** Closings that have not ended. */
  readonly #closing = new Set<Promise<void>>()

  constructor(parts: ReporterParts) {
    this.#parts = parts
    this.#machine = new ReporterMachine(parts.settings.intervalMs)
    parts.producers.listen(() => this.#step({ kind: "producers", live: parts.producers.size }))
  }

  /**
   * Ends it: a report that is under way is given up, and the reporter's own connection closed. Settles when that is done, or after
   * `stepTimeoutMs`, since nobody should have to wait for the sake of statistics. A second call awaits the first.
   */
  shutdown(): Promise<void> {
    this.#ending ??= this.#end()
    return this.#ending
  }

  #end(): Promise<void> {
    this.#step({ kind: "shutdown" })
    return new Promise((resolve) => {
      const timer = this.#parts.clock.setTimer(stepTimeoutMs, resolve)
      const end = (): void => {
        timer.cancel()
        resolve()
      }
      // Neither of them rejects.
      void Promise.all([this.#report, ...this.#closing]).then(end)
    })
  }

  #step(event: ReporterEvent): void {
    for (const command of this.#machine.step(event)) this.#execute(command)
  }

  #execute(command: ReporterCommand): void {
    switch (command.kind) {
      case "setTimer":
        // A report keeps no process alive.
        this.#timer = this.#parts.clock.setTimer(command.ms, () => this.#step({ kind: "due" }), { background: true })
        break
      case "cancelTimer":
        this.#timer?.cancel()
        this.#timer = undefined
        break
      case "report":
        this.#report = this.#run().then((outcome) => {
          this.#report = undefined
          this.#step({ kind: "reported", outcome })
        })
        break
      case "disconnect":
        this.#disconnect()
        break
    }
  }

  /** Never rejects. */
  async #run(): Promise<"sent" | "nothing" | "failed"> {
    let step: StatisticsFailed["step"] = "connect"
    try {
      const { clock, producers, settings } = this.#parts
      const observed = producers.observe(settings.maxProducers)
      if (observed.length === 0) return "nothing"
      const payload = encodeObservation({
        observedAtMillis: Number(clock.nowMicros() / 1000n),
        expiresAfterMillis: expiryIntervals * settings.intervalMs,
        producers: observed,
      })
      if (payload === undefined) return "nothing"
      this.#connection ??= this.#newConnection()
      const connection = this.#connection
      const writer = await connection.writer()
      step = "send"
      if (this.#stray !== undefined) throw new TimeoutError("the report before this one has not been answered")
      await connection.within("sent", this.#write(writer, payload))
      return "sent"
    } catch (error) {
      // Being interrupted by its own end is no failure.
      if (this.#machine.state !== "ended") diagnostics["statistics.failed"].publish({ step, error })
      return "failed"
    }
  }

  #newConnection(): Connection {
    const connection: Connection = new Connection(this.#parts, () => {
      // What an earlier one has to tell is of no interest any more.
      if (this.#connection === connection) this.#step({ kind: "lost" })
    })
    return connection
  }

  #write(writer: ReportWriter, payload: Uint8Array): Promise<void> {
    const writing = writer.write(payload)
    const settled = (): void => {
      this.#stray = undefined
    }
    this.#stray = writing.then(settled, settled)
    return writing
  }

  #disconnect(): void {
    const connection = this.#connection
    if (connection === undefined) return
    this.#connection = undefined
    const closing = connection.close().catch((error: unknown) => {
      diagnostics["statistics.failed"].publish({ step: "connect", error })
    })
    this.#closing.add(closing)
    void closing.then(() => this.#closing.delete(closing))
  }
}

/** One connection of the reporter, from its opening to its close. */
class Connection {
  readonly #parts: ReporterParts
  readonly #onLost: () => void
  readonly #abort = new AbortController()
  #opening: Promise<Session> | undefined
  #writer: ReportWriter | undefined

  constructor(parts: ReporterParts, onLost: () => void) {
    this.#parts = parts
    this.#onLost = onLost
  }

  async writer(): Promise<ReportWriter> {
    const { clock, random, producers, session, observe } = this.#parts
    if (this.#writer === undefined) {
      let opened = session
      if (observe !== undefined) {
        this.#opening ??= observe({
          timeoutMs: stepTimeoutMs,
          signal: this.#abort.signal,
          onConnection: (change) => (change.state === "lost" ? this.#onLost() : undefined),
        })
        opened = await this.within("connected", this.#opening)
      }
      this.#writer = new ReportWriter(opened, producers.reporter, { clock, random })
    }
    return this.#writer
  }

  /** The outcome of a step, or a failure at its deadline or when the connection is closed. What comes later is nobody's. */
  within<T>(what: string, work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const { signal } = this.#abort
      const end = (settle: () => void): void => {
        timer.cancel()
        signal.removeEventListener("abort", closed)
        settle()
      }
      const timer = this.#parts.clock.setTimer(
        stepTimeoutMs,
        () =>
          end(() =>
            reject(new TimeoutError(`the report of producer statistics was not ${what} within ${stepTimeoutMs} ms`)),
          ),
        { background: true },
      )
      const closed = (): void => end(() => reject(new ClosedError("the reporter of producer statistics ended")))
      if (signal.aborted) {
        closed()
        work.catch(() => {})
        return
      }
      signal.addEventListener("abort", closed, { once: true })
      work.then(
        (value) => end(() => resolve(value)),
        (error: unknown) => end(() => reject(error)),
      )
    })
  }

  /** Closes what is the reporter's own: a session that is still being opened is cancelled, or closed once it is there. */
  async close(): Promise<void> {
    this.#abort.abort()
    const opening = this.#opening
    if (opening === undefined) return
    let session: Session
    try {
      session = await opening
    } catch {
      // It never came to be: whoever waited for it was told why.
      return
    }
    await session.close()
  }
}
