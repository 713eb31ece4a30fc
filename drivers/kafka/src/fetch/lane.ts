/** One connection of a reader to one leader, with its fetch session: at most one request under way. */
import { ClosedError, type MillraceError } from "@millrace/contract"
import type { Cluster, NodeConnection } from "../cluster/cluster.ts"
import { errorCode, kafkaError } from "../errors.ts"
import { fetchApi } from "../protocol/api.ts"
import type { FetchResponse } from "../protocol/messages.generated.ts"
import { FetchSession, sessionless } from "./fetch-session.ts"
import type { Slot } from "./slot.ts"

/** What one request asks. */
export interface FetchOrder {
  readonly slots: readonly Slot[]
  /** Counts the requests of a reader, so that it knows which answer is newer. */
  readonly number: number
  readonly waitMs: number
  readonly maxBytes: number
  readonly partitionMaxBytes: number
  readonly committed: boolean
}

/** A request under way: which slots it asks for, and from where each. */
export interface Flight {
  readonly order: FetchOrder
  readonly offsets: ReadonlyMap<Slot, bigint>
}

/** The answer to a flight, or why there was none. */
export type FlightOutcome =
  | { readonly flight: Flight; readonly response: FetchResponse; readonly byId: boolean; readonly error?: undefined }
  | { readonly flight: Flight; readonly error: MillraceError }

/** From this version on topics go by their id. */
const firstVersionWithIds = 13
/** From this version on there are fetch sessions, and a partition's error does not hide the others' records. */
const firstVersion = 7

/** With a session for long polls, or without one for short ones beside it. */
export class Lane {
  readonly #cluster: Cluster
  readonly #nodeId: number
  readonly #session: FetchSession | undefined
  #connection: NodeConnection | undefined
  #opening = false
  #closed = false
  flight: Flight | undefined

  constructor(cluster: Cluster, nodeId: number, options: { readonly session: boolean }) {
    this.#cluster = cluster
    this.#nodeId = nodeId
    this.#session = options.session ? new FetchSession() : undefined
  }

  /** Whether it is neither waiting for an answer nor being opened. */
  get idle(): boolean {
    return this.flight === undefined && !this.#opening
  }

  get open(): boolean {
    return this.#connection !== undefined && !this.#connection.closed
  }

  /** Makes the connection. @throws ConnectionError and what else `Cluster.open` throws */
  async connect(): Promise<void> {
    this.#opening = true
    try {
      this.#session?.broken()
      const connection = await this.#cluster.open(this.#nodeId)
      if (this.#closed) connection.close()
      else this.#connection = connection
    } finally {
      this.#opening = false
    }
  }

  /** Sends one request; settles with its outcome, and never rejects. The lane must be idle and open. */
  async fetch(order: FetchOrder): Promise<FlightOutcome> {
    const offsets = new Map<Slot, bigint>()
    for (const slot of order.slots) offsets.set(slot, slot.fetchFrom)
    const flight: Flight = { order, offsets }
    this.flight = flight
    try {
      return await this.#ask(flight)
    } catch (error) {
      this.#session?.broken()
      this.#connection?.close()
      this.#connection = undefined
      return { flight, error: error as MillraceError }
    } finally {
      this.flight = undefined
    }
  }

  /** The next request tells the broker all partitions anew, whatever it was told before. */
  beginAgain(): void {
    this.#session?.broken()
  }

  /** What is under way ends with ClosedError. */
  close(): void {
    this.#closed = true
    this.#connection?.close()
    this.#connection = undefined
  }

  async #ask(flight: Flight): Promise<FlightOutcome> {
    const connection = this.#connection
    if (connection === undefined) throw new ClosedError("the connection of a reader is closed")
    const { order } = flight
    const version = connection.version(fetchApi, { minVersion: firstVersion })
    const targets = order.slots.map((slot) => slot.target())
    const part = this.#session?.plan(targets, order.partitionMaxBytes) ?? sessionless(targets, order.partitionMaxBytes)
    const response = await connection.request(
      fetchApi,
      {
        maxWaitMs: order.waitMs,
        minBytes: 1,
        maxBytes: order.maxBytes,
        isolationLevel: order.committed ? 1 : 0,
        ...part,
      },
      { timeoutMs: order.waitMs + this.#cluster.requestTimeoutMs, maxVersion: version, readOnly: true },
    )
    this.#noteSession(response)
    return { flight, response, byId: version >= firstVersionWithIds }
  }

  /** A session that the broker does not know, or counts otherwise, is begun anew with the next request. */
  #noteSession({ errorCode: code, sessionId }: FetchResponse): void {
    if (code === errorCode.none) this.#session?.answered(sessionId)
    else if (code === errorCode.fetchSessionIdNotFound) this.#session?.lost()
    else if (code === errorCode.invalidFetchSessionEpoch || code === fetchSessionTopicIdError) this.#session?.broken()
    else throw kafkaError(code, { what: `fetching from broker ${this.#nodeId}`, readOnly: true })
  }
}

/** Whether the flight asks for the slot as it stands, and will tell something as new as the caller wants. */
export function covers({ order, offsets }: Flight, slot: Slot, freshFrom: number | undefined): boolean {
  if (offsets.get(slot) !== slot.fetchFrom) return false
  return freshFrom === undefined || slot.answered >= freshFrom || order.number >= freshFrom
}

/** The session was begun with names and is continued with ids, or the reverse (KIP-516). */
const fetchSessionTopicIdError = 106
