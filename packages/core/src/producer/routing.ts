/** Which partition a record goes to: an explicit one, a custom choice, the key's, or the next in balance. In this order. */
import { Headers, InvalidError, type Manifest, type PartitionLog } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { checkKey, checkPartitionNumber, type PreparedRecord, type SendableRecord } from "../record/outgoing-record.ts"

/**
 * Where a producer's records go unless a send says otherwise (seed 000, "Topics, partitions, and routing"). `balanced` stays with one
 * partition for one request and goes on to the next; `key` sends everything where the backend's hash of the key points, and stores it.
 */
export type Routing =
  | { readonly kind: "balanced" }
  | { readonly kind: "key"; readonly key: Uint8Array | string }
  | { readonly kind: "partition"; readonly partition: number }

/** What a partitioner sees of a record. */
export interface PartitionerRecord {
  readonly payload: Uint8Array | null
  /** The record's own key, or that of the call or of the producer's routing. */
  readonly key: Uint8Array | null
  readonly headers: Headers
}

/**
 * A choice of partition by the user's own rule (seed 001, "Producer"; table 2.2 of the options): called once for each record without
 * an explicit partition, it answers 0 to `partitions` − 1. It overrides keys and balance; an error or another answer refuses the whole
 * call, and nothing of it is sent.
 * @param topic Where the record goes, with `sendTo` the other topic. `stream` is empty for the backend's own topic of this name.
 * @param partitions How many the topic has now; more may be added while a producer lives.
 */
export type Partitioner = (
  topic: { readonly stream: string; readonly name: string },
  record: PartitionerRecord,
  partitions: number,
) => number

/** Routing with its key as checked bytes. */
export type Route =
  | { readonly kind: "balanced" }
  | { readonly kind: "key"; readonly key: Uint8Array }
  | { readonly kind: "partition"; readonly partition: number }

export const balanced: Route = { kind: "balanced" }

/** @throws InvalidError for an unknown kind, an empty key, a partition that is no whole number from 0 */
export function checkRouting(routing: Routing | undefined, limits: Manifest["limits"]): Route {
  if (routing === undefined) return balanced
  switch (routing?.kind) {
    case "balanced":
      return balanced
    case "key":
      return { kind: "key", key: checkKey(routing.key, limits) }
    case "partition":
      return { kind: "partition", partition: checkPartitionNumber(routing.partition) }
    default:
      throw new InvalidError(
        `routing ${shown((routing as { kind?: unknown } | null)?.kind)} is not known: the kinds are "balanced", "key" and "partition"`,
      )
  }
}

/** A route for one call: its key or its partition, else the fallback. @throws InvalidError when both are given */
export function routeOf(
  call: { readonly key?: Uint8Array | string; readonly partition?: number },
  fallback: Route,
  limits: Manifest["limits"],
): Route {
  if (call.key !== undefined && call.partition !== undefined) {
    throw new InvalidError(
      `key and partition ${shown(call.partition)} exclude each other: give one, or none for balance`,
    )
  }
  if (call.key !== undefined) return { kind: "key", key: checkKey(call.key, limits) }
  if (call.partition !== undefined) return { kind: "partition", partition: checkPartitionNumber(call.partition) }
  return fallback
}

/** The partition that a record or its route names, −1 without one. */
export function partitionOf(record: SendableRecord, route: Route): number {
  if (routesItself(record)) return record.partition
  return route.kind === "partition" ? route.partition : -1
}

/** Whether a record has a place of its own and takes no part in the routing of its call. */
export function routesItself(record: SendableRecord): record is PreparedRecord {
  return !(record instanceof Uint8Array) && (record.partition !== -1 || record.key !== null)
}

/** The partition of each record of a topic; made anew when the topic's description changes. */
export class Router {
  readonly #log: PartitionLog
  readonly #place: { readonly stream: string; readonly topic: string; readonly partitions: number }
  /** The topic as partitioners see it. */
  readonly #topic: { readonly stream: string; readonly name: string }
  readonly #partitioner: Partitioner | undefined

  constructor(
    log: PartitionLog,
    place: { readonly stream: string; readonly topic: string; readonly partitions: number },
    partitioner: Partitioner | undefined,
  ) {
    this.#log = log
    this.#place = place
    this.#topic = { stream: place.stream, name: place.topic }
    this.#partitioner = partitioner
  }

  get partitions(): number {
    return this.#place.partitions
  }

  /** Whether all records of a call without places of their own share one partition. */
  get isUniform(): boolean {
    return this.#partitioner === undefined
  }

  /** The partition that a call's records share, −1 in balance. */
  partitionOfRoute(route: Route): number {
    if (route.kind === "partition") return route.partition
    return route.kind === "key" ? this.#hash(route.key) : -1
  }

  /** The partition of one record, −1 in balance. @throws InvalidError when the partitioner fails or answers out of range */
  partitionOf(record: SendableRecord, route: Route): number {
    const own = routesItself(record)
    const explicit = own ? record.partition : route.kind === "partition" ? route.partition : -1
    if (explicit !== -1) return explicit
    const key = own ? record.key : route.kind === "key" ? route.key : null
    if (this.#partitioner !== undefined) return this.#choose(this.#partitioner, visible(record, key))
    return key === null ? -1 : this.#hash(key)
  }

  #hash(key: Uint8Array): number {
    return this.#log.keyHash(key) % this.#place.partitions
  }

  #choose(partitioner: Partitioner, record: PartitionerRecord): number {
    let chosen: unknown
    try {
      chosen = partitioner(this.#topic, record, this.#place.partitions)
    } catch (error) {
      throw new InvalidError(`the partitioner failed: ${error instanceof Error ? error.message : shown(error)}`, {
        cause: error,
      })
    }
    const { stream, topic, partitions } = this.#place
    if (typeof chosen === "number" && Number.isInteger(chosen) && chosen >= 0 && chosen < partitions) return chosen
    throw outOfRange(`the partitioner's answer ${shown(chosen)}`, { stream, topic, partitions })
  }
}

/** The error for a partition that the topic does not have. */
export function outOfRange(
  what: string,
  place: { readonly stream: string; readonly topic: string; readonly partitions: number },
): InvalidError {
  const { stream, topic, partitions } = place
  const name = stream === "" ? topic : `${stream}/${topic}`
  const count = partitions === 1 ? "1 partition (0)" : `${partitions} partitions (0 to ${partitions - 1})`
  return new InvalidError(`${what} of topic "${name}" is out of range: the topic has ${count}`, {
    context: { stream, topic },
  })
}

function visible(record: SendableRecord, key: Uint8Array | null): PartitionerRecord {
  if (record instanceof Uint8Array) return { payload: record, key, headers: Headers.empty }
  return { payload: record.payload, key, headers: record.headers }
}
