import { setTimeout as wait } from "node:timers/promises"
import type { Producer, Topic, TypedTopic } from "millrace"
import { Json } from "millrace"
import type { Flight } from "./flights.ts"
import { decodeFlight } from "./flights.ts"

const text = new TextEncoder()

/** So many flights are handed in at once; their sends share batches. */
const chunk = 250

/** The flights as JSON in their topic. */
function typedFlights(topic: Topic): TypedTopic<Flight> {
  return topic.json(new Json(decodeFlight))
}

/**
 * The flights that are not in the topic yet. All flights of one airport have one key, so they lie in one partition, in the order of the
 * file: of each airport, as many as the topic has are done.
 */
export async function unpublished(topic: Topic, flights: readonly Flight[]): Promise<Flight[]> {
  const done = new Map<string, number>()
  await using reader = await typedFlights(topic).records("what-is-published")
  for await (const result of reader.stream()) {
    if (result.kind === "error") throw result.error
    if (result.kind !== "record") continue
    done.set(result.value.origin, (done.get(result.value.origin) ?? 0) + 1)
  }
  return flights.filter(({ origin }) => {
    const left = done.get(origin) ?? 0
    done.set(origin, left - 1)
    return left <= 0
  })
}

/**
 * The producer of the flights. It answers a send when the record is on the disk of this machine, in the spool, and delivers it from
 * there: a crash here or a server that is away cost no flight.
 */
export function flightsFeed(topic: Topic, spool: string): Producer {
  return topic.producer({ createStream: false, createTopic: false, background: { spool } })
}

/** Sends flights, keyed by airport, at about so many a second; `onAccepted` hears how many more will be published. */
export async function publishFlights(
  feed: Producer,
  flights: readonly Flight[],
  options: { readonly perSecond: number; readonly signal: AbortSignal; readonly onAccepted: (count: number) => void },
): Promise<void> {
  const begin = performance.now()
  for (let start = 0; start < flights.length; start += chunk) {
    options.signal.throwIfAborted()
    const due = begin + (start / options.perSecond) * 1_000
    await wait(Math.max(0, due - performance.now()), undefined, { signal: options.signal })
    const part = flights.slice(start, start + chunk)
    await Promise.all(part.map((flight) => feed.send(text.encode(JSON.stringify(flight)), { key: flight.origin })))
    options.onAccepted(part.length)
  }
  await feed.flush()
}
