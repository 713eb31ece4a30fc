import { ClosedError, TimeoutError, type TopicName } from "@millrace/contract"
import type { ClientContext, Owned } from "../client/context.ts"
import { OptionReader } from "../client/options.ts"
import type { Publisher } from "./publisher.ts"
import type { ProducerStatistics } from "./statistics.ts"

export interface ShutdownOptions {
  /** How long unsettled sends may take, in ms. Default 30,000. */
  readonly timeoutMs?: number
}

const defaultShutdownMs = 30_000

/** What ends: publishers, with what has to be done before their last send is on its way. */
export interface EndingParts {
  /** How errors call it: `producer of topic "s/t"`. */
  readonly owner: string
  readonly publishers: readonly Publisher[]
  /** Settles when every send has settled. */
  readonly flush: () => Promise<void>
  /** The deadline has passed: what has not begun must not begin any more. */
  readonly giveUp?: (error: TimeoutError) => void
  /** What else is waited for, as the error at the deadline says it. */
  readonly waitsFor?: () => string | undefined
  /** A producer whose statistics are reported until it has ended. */
  readonly reports?: { readonly name: TopicName; readonly statistics: () => ProducerStatistics }
}

/**
 * The end of something that sends: at once no more sends are taken, those before have until a deadline, and what has not settled then
 * fails. Registered with the client, whose close does the same.
 */
export class SendingEnd {
  readonly #client: ClientContext
  readonly #parts: EndingParts
  readonly #disown: () => void
  readonly #unreport: (() => void) | undefined
  #ending: Promise<void> | undefined

  /** @param owned What the client's close shuts down. */
  constructor(client: ClientContext, parts: EndingParts, owned: Owned) {
    this.#client = client
    this.#parts = parts
    this.#disown = client.own(owned)
    const { reports } = parts
    this.#unreport = reports === undefined ? undefined : client.producers.add(reports.name, reports.statistics)
  }

  /** @throws ClosedError after shutdown */
  assertOpen(): void {
    if (this.#ending !== undefined) throw new ClosedError(`${this.#parts.owner} was shut down`)
  }

  /**
   * Ends it; a second call awaits the first.
   * @param last What comes behind the last send, told what was given up at the deadline.
   * @throws InvalidError for the options, TimeoutError at the deadline unless `last` takes it
   */
  begin(
    options: ShutdownOptions | undefined,
    last: (late: TimeoutError | undefined) => Promise<void> = rethrow,
  ): Promise<void> {
    if (this.#ending !== undefined) return this.#ending
    const owner = `shutdown of the ${this.#parts.owner}`
    const read = new OptionReader<ShutdownOptions>(owner, options, ["timeoutMs"])
    const timeoutMs = read.duration("timeoutMs", { zero: true, fallback: defaultShutdownMs })
    this.#ending = this.#end(timeoutMs, last)
    return this.#ending
  }

  async #end(timeoutMs: number, last: (late: TimeoutError | undefined) => Promise<void>): Promise<void> {
    try {
      await last(await this.#drain(timeoutMs))
    } finally {
      for (const publisher of this.#parts.publishers) publisher.end()
      this.#unreport?.()
      this.#disown()
    }
  }

  #drain(timeoutMs: number): Promise<TimeoutError | undefined> {
    return new Promise((resolve, reject) => {
      const timer = this.#client.clock.setTimer(timeoutMs, () => resolve(this.#giveUp(timeoutMs)))
      this.#parts
        .flush()
        .finally(() => timer.cancel())
        .then(() => resolve(undefined), reject)
    })
  }

  #giveUp(timeoutMs: number): TimeoutError {
    const { owner, publishers, giveUp } = this.#parts
    let sends = 0
    let records = 0
    for (const { unsettled } of publishers) {
      for (const call of unsettled) {
        sends += call.sends
        records += call.count
      }
    }
    const unconfirmed = `${counted(records, "record")} of ${counted(sends, "send")} had no confirmation`
    const other = this.#parts.waitsFor?.()
    const what = [
      ...(sends === 0 && other !== undefined ? [] : [unconfirmed]),
      ...(other === undefined ? [] : [other]),
    ].join(" and ")
    const message = `${owner}: ${what} ${timeoutMs} ms after its shutdown began`
    const ended = new TimeoutError(message, { outcome: "rejected" })
    giveUp?.(ended)
    for (const publisher of publishers) publisher.abort(ended)
    return new TimeoutError(message, { context: { unconfirmedRecords: records, unconfirmedSends: sends } })
  }
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`
}

async function rethrow(late: TimeoutError | undefined): Promise<void> {
  if (late !== undefined) throw late
}
