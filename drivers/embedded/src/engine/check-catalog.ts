/** The part of the offline check that looks at the catalog, and at rows that belong to nothing in it. */
import type { Findings } from "./check-findings.ts"
import { batchesPerPartition } from "./schema.ts"

/** A partition of a topic: the store's key, and how problems name it. */
export interface PartitionKey {
  readonly key: number
  readonly name: string
}

/** Streams, topics, partitions and counters refer to each other rightly. */
export function checkCatalog(findings: Findings): void {
  findings.streams = Number(findings.one("SELECT count(*) AS n FROM stream WHERE name <> ''")?.n)
  findings.topics = Number(findings.one("SELECT count(*) AS n FROM topic")?.n)
  for (const row of findings.all("SELECT id, name FROM topic WHERE stream NOT IN (SELECT id FROM stream)"))
    findings.found(`topic ${row.name} (${row.id}) belongs to no stream`)
  for (const row of findings.all("SELECT id, name FROM topic WHERE id NOT IN (SELECT topic FROM topic_partition)"))
    findings.found(`topic ${row.name} (${row.id}) has no partition`)
  for (const row of findings.all(
    "SELECT topic, partition FROM topic_partition WHERE topic NOT IN (SELECT id FROM topic)",
  ))
    findings.found(`partition ${row.partition} belongs to no topic (${row.topic})`)
  for (const row of findings.all(
    "SELECT topic, count(*) AS n, max(partition) AS last FROM topic_partition GROUP BY topic HAVING n <> last + 1",
  ))
    findings.found(`the partitions of topic ${row.topic} are not numbered from 0 without a gap`)
  for (const [counter, largest] of [
    ["nextTopic", "SELECT max(id) AS n FROM topic"],
    ["nextPartition", "SELECT max(key) AS n FROM topic_partition"],
    ["nextProducer", "SELECT max(id) AS n FROM producer"],
    ["nextSegment", "SELECT max(id) AS n FROM segment"],
  ] as const) {
    const next = findings.one(`SELECT value FROM store_value WHERE name = '${counter}'`)?.value as bigint | undefined
    const most = (findings.one(largest)?.n as bigint | null | undefined) ?? 0n
    if (next === undefined || next <= most)
      findings.found(`the counter ${counter} is ${next}, though ${most} is in use`)
  }
}

/** The partitions that topics have. */
export function livePartitions(findings: Findings): PartitionKey[] {
  const rows = findings.all(
    `SELECT key, partition, topic.name AS topic, stream.name AS stream FROM topic_partition
     JOIN topic ON topic.id = topic_partition.topic JOIN stream ON stream.id = topic.stream ORDER BY key`,
  )
  findings.partitions = rows.length
  return rows.map((row) => ({
    key: Number(row.key),
    name: `partition ${row.partition} of topic ${JSON.stringify(`${row.stream}/${row.topic}`)}`,
  }))
}

/** Rows of partitions that no topic has, unless they wait to be swept. */
export function checkStrays(findings: Findings, known: ReadonlySet<number>): void {
  const swept = new Set(
    findings.all("SELECT partition FROM garbage WHERE partition IS NOT NULL").map((row) => Number(row.partition)),
  )
  for (const table of ["log_state", "batch_summary", "record_id"])
    for (const row of findings.all(`SELECT DISTINCT partition FROM ${table}`)) {
      const key = Number(row.partition)
      if (!known.has(key) && !swept.has(key))
        findings.found(`${table} has rows of a partition that does not exist (${key})`)
    }
  for (const row of findings.all(
    `SELECT count(*) AS n, min(batch.id) AS first FROM batch
     LEFT JOIN log_state ON log_state.partition = batch.id / ${batchesPerPartition} AND producer = 0
     WHERE (first_batch IS NULL OR batch.id % ${batchesPerPartition} < first_batch)
     AND NOT EXISTS (SELECT 1 FROM garbage WHERE batch.id BETWEEN low AND high)`,
  ))
    if (row.n !== 0n)
      findings.found(`${row.n} batches belong to no partition and are not to be swept (the first is ${row.first})`)
}
