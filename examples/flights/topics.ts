/** The names that the programs of this example share. */
import type { Client, ConsumerGroup, Topic } from "millrace"
import { NotFoundError } from "millrace"

/** Partitions of the flights, and of the results: results of partition n are in partition n. */
export const partitions = 4

/** The flights, keyed by the airport that they leave from. */
export function flightsTopic(client: Client, stream: string): Topic {
  return client.stream(stream).topic("departures")
}

/** The delays by airport, as snapshots. */
export function resultsTopic(client: Client, stream: string): Topic {
  return client.stream(stream).topic("delays")
}

/** One record for each flight, exactly once. */
export function ledgerTopic(client: Client, stream: string): Topic {
  return client.stream(stream).topic("ledger")
}

/** The consumer group of the workers. Some backends keep groups apart from streams, so it has the stream in its name. */
export function workersGroup(client: Client, stream: string): ConsumerGroup {
  return flightsTopic(client, stream).consumerGroup(`${stream}-workers`)
}

/** The name of the processors' group. */
export function processorsGroupName(stream: string): string {
  return `${stream}-processors`
}

/** Deletes all of it; what was not made yet need not go. */
export async function deleteAll(client: Client, stream: string): Promise<void> {
  const processors = flightsTopic(client, stream).consumerGroup(processorsGroupName(stream))
  for (const thing of [workersGroup(client, stream), processors, client.stream(stream)]) {
    try {
      await thing.delete()
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error
    }
  }
}
