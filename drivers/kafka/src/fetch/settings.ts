/** How a reader asks its brokers. */
export interface FetchSettings {
  /** The most that one request asks a broker for, in bytes. A first batch above it comes all the same. */
  readonly fetchMaxBytes: number
  /** The most that one request asks of one partition, in bytes. */
  readonly partitionFetchBytes: number
  /** How long a broker may keep a request that it has nothing for, in ms. */
  readonly fetchMaxWaitMs: number
}

/** Those of Kafka's own consumer (`fetch.max.bytes`, `max.partition.fetch.bytes`, `fetch.max.wait.ms`). */
export const defaultFetchSettings: FetchSettings = {
  fetchMaxBytes: 50 * 1024 * 1024,
  partitionFetchBytes: 1024 * 1024,
  fetchMaxWaitMs: 500,
}
