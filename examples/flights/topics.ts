/** The names that the programs of this example share. */
import type { Client, Topic } from "millrace"

/** Partitions of the flights, and of the results: results of partition n are in partition n. */
export const partitions = 4

/** The consumer group of the workers. */
export const group = "delay-workers"

/** The flights, keyed by the airport that they leave from. */
export function flightsTopic(client: Client): Topic {
  return client.stream("flights").topic("departures")
}

/** The delays by airport, as snapshots. */
export function resultsTopic(client: Client): Topic {
  return client.stream("flights").topic("delays")
}
