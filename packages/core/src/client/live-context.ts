import {
  ClosedError,
  type Manifest,
  type Session,
  TimeoutError,
  type TopicDescription,
  type TopicName,
} from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import type { Encryptor } from "../encryption/encryptor.ts"
import { FilterLog } from "../filter/filter-log.ts"
import { FilterWatch } from "../filter/filter-watch.ts"
import { publishConnectionChange } from "../observe/diagnostics.ts"
import { ProducerRegistry } from "../observe/producer-registry.ts"
import { type ObserveOptions, StatisticsReporter } from "../observe/statistics-reporter.ts"
import type { StatisticsSettings } from "../observe/statistics-settings.ts"
import type { Telemetry } from "../observe/telemetry.ts"
import type { SchemaRegistry } from "../schema/schema.ts"
import { StateRegistry } from "../schema/state-registry.ts"
import type { ClientSettings } from "./client-options.ts"
import { ConnectionWatch } from "./connection-watch.ts"
import type { ClientContext, Owned, TopicDirectory } from "./context.ts"
import { CachedTopicDirectory } from "./topic-directory.ts"

/** What the connection's own close gets when shutting down took all the time there was, in ms. */
const graceMs = 1000

/** What a client gets from the program around it. */
export interface ClientRuntime {
  readonly clock: Clock
  readonly random: Random
  /** Where the session reports its connections; absent for a session that has none. */
  readonly connection?: ConnectionWatch
  /** How producer statistics are reported to others; absent: they are not. */
  readonly statistics?: StatisticsSettings
  /** Opens a second connection to the same backend, for reports. Absent where the client's own session serves. */
  readonly observe?: (options: ObserveOptions) => Promise<Session>
  /** Spans and metrics; absent when nobody collects any. */
  readonly telemetry?: Telemetry
  /**
   * Opens, and where need be makes, the embedded log of a spool in a directory, for one user at a time. Absent: producers with a spool
   * are refused.
   */
  readonly openSpool?: (directory: string) => Promise<Session>
}

/** The context of a client that can be closed, with what it has to shut down. */
export class LiveContext implements ClientContext {
  readonly session: Session
  readonly clock: Clock
  readonly random: Random
  readonly connection: ConnectionWatch
  readonly publish: ClientSettings["publish"]
  readonly encryptor: Encryptor | undefined
  readonly topics: TopicDirectory
  readonly filters: FilterWatch
  /** The backend's own, or those that the client was opened with. */
  readonly schemas: SchemaRegistry
  readonly producers: ProducerRegistry
  readonly telemetry: Telemetry | undefined
  readonly openSpool: ClientContext["openSpool"]
  readonly #owned = new Set<Owned>()
  #closing: Promise<void> | undefined

  constructor(session: Session, settings: ClientSettings, runtime: ClientRuntime) {
    this.session = session
    this.clock = runtime.clock
    this.random = runtime.random
    this.connection = runtime.connection ?? new ConnectionWatch()
    this.publish = settings.publish
    this.encryptor = settings.encryptor
    const directory = new CachedTopicDirectory(session.catalog)
    this.topics = {
      describe: (name: TopicName): Promise<TopicDescription> => directory.describe(name),
      forget: (name: TopicName): void => directory.forget(name),
    }
    this.filters = new FilterWatch(new FilterLog({ session, clock: this.clock, random: this.random }), this.clock)
    const { clock, publish } = this
    this.schemas =
      settings.schemas ?? new StateRegistry({ session, clock, publish, assertOpen: () => this.assertOpen() })
    this.telemetry = runtime.telemetry
    this.openSpool = runtime.openSpool
    this.connection.listen(publishConnectionChange)
    this.producers = new ProducerRegistry(this.clock, this.random)
    if (runtime.statistics !== undefined) this.#owned.add(this.#reporter(runtime.statistics, runtime.observe))
  }

  get manifest(): Manifest {
    return this.session.manifest
  }

  own(owned: Owned): () => void {
    this.assertOpen()
    this.#owned.add(owned)
    return () => void this.#owned.delete(owned)
  }

  /** @throws ClosedError once `close` was called */
  assertOpen(): void {
    if (this.#closing !== undefined) throw new ClosedError("the client was closed")
  }

  /** Shuts down what is owned, all at the same time, then the session. The second call awaits the first. */
  close(timeoutMs: number): Promise<void> {
    this.#closing ??= this.#end(timeoutMs)
    return this.#closing
  }

  async #end(timeoutMs: number): Promise<void> {
    const startedMs = this.clock.monotonicMs()
    const shutdowns = [...this.#owned].map((owned) => {
      const ending = owned.shutdown({ timeoutMs })
      return this.#within(timeoutMs + graceMs, ending, `a part of the client did not shut down within ${timeoutMs} ms`)
    })
    const outcomes = await Promise.allSettled(shutdowns)
    const failures = outcomes.filter((outcome) => outcome.status === "rejected").map((outcome) => outcome.reason)
    const leftMs = Math.max(graceMs, timeoutMs - (this.clock.monotonicMs() - startedMs))
    try {
      await this.#within(leftMs, this.session.close(), `the connection did not close within ${timeoutMs} ms`)
    } catch (error) {
      failures.push(error)
    }
    if (failures.length === 1) throw failures[0]
    if (failures.length > 1) throw combined(failures)
  }

  #reporter(settings: StatisticsSettings, observe: ClientRuntime["observe"]): StatisticsReporter {
    const { clock, random, session, producers } = this
    return new StatisticsReporter({ clock, random, session, producers, settings, observe })
  }

  #within(ms: number, work: Promise<void>, message: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = this.clock.setTimer(ms, () => reject(new TimeoutError(message)))
      const end = (settle: () => void): void => {
        timer.cancel()
        settle()
      }
      work.then(
        () => end(resolve),
        (error) => end(() => reject(error)),
      )
    })
  }
}

function combined(failures: readonly unknown[]): TimeoutError {
  const messages = failures.map((failure) => (failure instanceof Error ? failure.message : String(failure)))
  return new TimeoutError(`closing the client failed in ${failures.length} places: ${messages.join("; ")}`, {
    cause: new AggregateError(failures),
  })
}
