import type { LogReader, MillraceError, PartitionRead, ReadPosition } from "@millrace/contract"
import type { Clock, Timer } from "@millrace/runtime"
import type { ConsumerSettings } from "../consumer/consumer-options.ts"
import { asMillraceError } from "./failure.ts"
import { Fetcher } from "./fetcher.ts"
import type { Lane, Slice } from "./lane.ts"
import { ReadAhead, type Room } from "./read-ahead.ts"

interface PollingHost {
  readonly lanes: Iterable<Lane>
  openReader(): LogReader
  /** @returns whether anything came of it */
  read(answer: readonly PartitionRead[]): boolean
  pollFailed(error: MillraceError): void
}

/**
 * How long the read-ahead may be short of room before partitions are left out of the polls for it, in ms. Leaving out costs: a driver
 * forgets what it has fetched ahead of such a partition. While the caller is quick there is room again long before.
 */
const patienceMs = 100

/**
 * Which partitions of a consumer are polled, and how much of them: the log's reader, its poll, and what is read ahead. As long as there
 * is room all of them are polled; when room has been short for `patienceMs`, only those that have some of their own (`ReadAhead`).
 */
export class LanePolling {
  readonly #settings: ConsumerSettings
  readonly #clock: Clock
  readonly #host: PollingHost
  readonly #readAhead: ReadAhead
  /** Readers that were replaced, until they are closed. */
  readonly #closing = new Set<Promise<void>>()
  #fetcher: Fetcher | undefined
  /** Whether each partition is held to its share. */
  #strict = false
  /** Held to their shares, nobody has room. */
  #full = false
  #patience: Timer | undefined
  #closed = false

  constructor(settings: ConsumerSettings, clock: Clock, host: PollingHost) {
    this.#settings = settings
    this.#clock = clock
    this.#host = host
    this.#readAhead = new ReadAhead(settings)
  }

  /** Whether a poll is under way. */
  get polling(): boolean {
    return this.#fetcher?.polling ?? false
  }

  /** What is read ahead of the caller: encoded bytes and records of batches that are not handed out in full. */
  get readAhead(): { readonly bytes: number; readonly records: number } {
    return this.#readAhead
  }

  /** Tells the reader what to read: the partitions that stand somewhere, are not paused, and have room. */
  set(): void {
    if (this.#closed) return
    const reading = []
    for (const lane of this.#host.lanes) if (lane.machine.reading && !lane.paused) reading.push(lane)
    this.#readAhead.divide(reading.length)
    const polled = this.#strict ? reading.filter(({ holding }) => this.#readAhead.polls(holding)) : reading
    if (polled.length === reading.length && !this.#readAhead.tight) this.#strict = false
    if (this.#fetcher === undefined && polled.length === 0) return
    this.#fetcher ??= this.#newFetcher()
    // Where nobody may be polled for want of room, the reader stays as it is and is not asked.
    this.#full = polled.length === 0 && reading.length > 0
    if (!this.#full) this.#fetcher.set(polled.map(positionOf))
  }

  /** What an answer brought has been taken. */
  taken(): void {
    if (this.#strict) this.set()
    else if (this.#readAhead.tight) this.#patience ??= this.#clock.setTimer(patienceMs, () => this.#beStrict())
  }

  /** Where to read has changed, and not only how much: no pause between polls holds that up. */
  hurry(): void {
    this.#fetcher?.hurry()
  }

  took({ lane, source, count }: Slice): void {
    this.#readAhead.took(lane.holding, source.batch.bytes, count)
  }

  /** A slice was handed out in full, or thrown away. */
  gaveBack({ lane, source, count }: Slice): void {
    if (!this.#readAhead.gaveBack(lane.holding, source.batch.bytes, count)) return
    if (this.#strict) this.set()
    else if (!this.#readAhead.tight) {
      this.#patience?.cancel()
      this.#patience = undefined
      this.#fetcher?.wake()
    }
  }

  #beStrict(): void {
    this.#patience = undefined
    this.#strict = true
    this.set()
  }

  /** What the next poll may bring. */
  get #room(): Room | undefined {
    if (this.#strict ? this.#full : this.#readAhead.tight) return undefined
    return this.#readAhead.room
  }

  /** Takes a fresh reader, in the place of one that may hang. Nothing that was read is lost or read twice. */
  refresh(): void {
    const old = this.#fetcher
    if (old === undefined || this.#closed) return
    this.#fetcher = undefined
    const closing: Promise<void> = old
      .close()
      .catch((error) => this.#host.pollFailed(asMillraceError(error)))
      .then(() => void this.#closing.delete(closing))
    this.#closing.add(closing)
    this.set()
  }

  /** Settles when no poll is under way. */
  async close(): Promise<void> {
    this.#closed = true
    this.#patience?.cancel()
    await Promise.all([this.#fetcher?.close(), ...this.#closing])
  }

  #newFetcher(): Fetcher {
    const room = (): Room | undefined => this.#room
    return new Fetcher(this.#host.openReader(), this.#settings, this.#clock, {
      read: (answer) => this.#host.read(answer),
      pollFailed: (error) => this.#host.pollFailed(error),
      get room() {
        return room()
      },
    })
  }
}

function positionOf({ partition, machine, claim }: Lane): ReadPosition {
  const position = { ...partition, offset: machine.offset, lineage: machine.lineage }
  return claim === undefined ? position : { ...position, claim }
}
