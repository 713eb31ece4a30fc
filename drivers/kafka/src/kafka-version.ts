/** Which release of Kafka a cluster's finalized `metadata.version` stands for. */

/** The first level of each release (Kafka's `MetadataVersion`). */
const firstLevels: readonly (readonly [level: number, release: string])[] = [
  [7, "3.3"],
  [8, "3.4"],
  [9, "3.5"],
  [12, "3.6"],
  [15, "3.7"],
  [20, "3.8"],
  [21, "3.9"],
  [22, "4.0"],
  [26, "4.1"],
  [28, "4.2"],
  [30, "4.3"],
  [31, "4.4"],
  [34, "4.5"],
]

/** `Apache Kafka 4.1`, or `Apache Kafka` where it cannot be told: without KRaft there is no level. */
export function kafkaRelease(metadataVersion: number): string {
  const known = firstLevels.findLast(([level]) => metadataVersion >= level)
  return known === undefined ? "Apache Kafka" : `Apache Kafka ${known[1]}`
}
