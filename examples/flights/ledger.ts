/** What the processors make: one entry for each flight, and how to tell whether that came true. */
import type { Topic, TypedReader, TypedTopic } from "millrace"
import { json } from "millrace"
import { DelayTable } from "./delays.ts"
import { Deliveries } from "./deliveries.ts"

/** One flight, as it is entered. */
export interface LedgerEntry {
  /** Where the flight lies in its topic. The offset is text, since a JSON number loses digits above 2^53. */
  readonly partition: number
  readonly offset: string
  readonly airport: string
  readonly delay: number
}

/** How flights and entries compare. */
export interface Balance {
  /** Flights in their topic. */
  readonly flights: number
  /** Entries in the ledger. */
  readonly entries: number
  /** Flights without an entry. */
  readonly missing: number
  /** Flights with more than one. */
  readonly twice: number
  /** The delays by airport, from the entries alone. */
  readonly table: DelayTable
}

/** The ledger as JSON in its topic. */
export function typedLedger(topic: Topic): TypedTopic<LedgerEntry> {
  return topic.json(json(decodeEntry))
}

/** Reads the ledger, and goes on reading as it grows. */
export class LedgerReader implements AsyncDisposable {
  readonly #reader: TypedReader<LedgerEntry>
  readonly #of = new Deliveries()
  readonly #table = new DelayTable()
  #entries = 0

  private constructor(reader: TypedReader<LedgerEntry>) {
    this.#reader = reader
  }

  static async open(topic: Topic): Promise<LedgerReader> {
    return new LedgerReader(await typedLedger(topic).records("ledger"))
  }

  /** Flights that have an entry, as far as was read. */
  get flights(): number {
    return this.#of.distinct
  }

  /** Reads what is there by now. Entries of a transaction that is not committed are not. */
  async catchUp(): Promise<void> {
    for await (const result of this.#reader.stream()) {
      if (result.kind === "error") throw result.error
      if (result.kind !== "record") continue
      const { partition, offset, airport, delay } = result.value
      this.#of.add(partition, BigInt(offset))
      this.#table.add(airport, delay)
      this.#entries++
    }
  }

  /** Compares what was read with the flights that are there. */
  async balance(flights: Topic): Promise<Balance> {
    let count = 0
    let missing = 0
    await using replay = await flights.replay()
    for await (const result of replay.stream()) {
      if (result.kind === "error") throw result.error
      if (result.kind !== "record") continue
      const { partition, offset } = result.message.position
      count++
      if (!this.#of.has(partition, offset)) missing++
    }
    return { flights: count, entries: this.#entries, missing, twice: this.#of.repeated, table: this.#table }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#reader[Symbol.asyncDispose]()
  }
}

/** Whether each flight has its one entry, and nothing else has one. */
export function isOneToOne({ flights, entries, missing, twice }: Balance): boolean {
  return entries === flights && missing === 0 && twice === 0
}

function decodeEntry(value: unknown): LedgerEntry {
  const { partition, offset, airport, delay } = Object(value) as Record<string, unknown>
  if (!Number.isSafeInteger(partition)) throw new TypeError(`"partition" of an entry is ${String(partition)}`)
  if (typeof offset !== "string" || !/^\d+$/.test(offset))
    throw new TypeError(`"offset" of an entry is ${String(offset)}`)
  if (typeof airport !== "string") throw new TypeError(`"airport" of an entry is ${typeof airport}, not text`)
  if (!Number.isSafeInteger(delay)) throw new TypeError(`"delay" of an entry is ${String(delay)}`)
  return value as LedgerEntry
}
