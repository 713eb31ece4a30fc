/**
 * One worker, a process of its own: reads flights as a member of the group, counts them, stores snapshots, commits. What it says to its
 * parent is for show; the state is in the topics.
 */
import process from "node:process"
import type { Consumer, Message, Topic } from "millrace"
import { connect, NotAssignedError } from "millrace"
import { decodeFlight } from "./flights.ts"
import { PartitionWork } from "./partition-work.ts"
import { newestSnapshots, storeSnapshot } from "./snapshot.ts"
import { resultsTopic, workersGroup } from "./topics.ts"
import type { WorkerReport, WorkerTask } from "./worker-process.ts"

/** A snapshot is stored when so many flights wait for one, and whenever the worker has caught up. */
const flightsPerSnapshot = 200

/** Offsets are committed less often: a commit only saves repeated deliveries, the snapshots make them harmless. */
const commitEveryMs = 500

/** The partitions that this worker has counted flights of since they were assigned. */
const work = new Map<number, PartitionWork>()
/** Partitions that were given away while their snapshot was being read. */
const forgotten = new Set<number>()
/** The last flight of each partition that is in a stored snapshot, and not committed. */
const saved = new Map<number, Message>()
let committedAt = performance.now()

const stop = new AbortController()
process.on("message", () => stop.abort())
// Without its parent, a worker would go on unwatched.
const orphaned = (): never => process.exit(1)
process.on("disconnect", orphaned)

const { url, stream, sessionTimeoutMs } = JSON.parse(process.argv[2] ?? "") as WorkerTask
await using client = await connect(url)
const results = resultsTopic(client, stream)
await using consumer = await workersGroup(client, stream).consumer({
  commitPolicy: { kind: "disabled" },
  sessionTimeoutMs,
})
consumer.on({
  assigned: (partitions) => {
    forget(partitions)
    report({ kind: "assigned", partitions: numbers(partitions) })
  },
  revoked: release,
  lost: release,
})
// The first assignment was told before anybody could listen.
report({ kind: "assigned", partitions: numbers(await consumer.lag()) })

try {
  for await (const message of consumer.stream({ signal: stop.signal })) {
    report({ kind: "delivered", partition: message.position.partition, offset: message.position.offset })
    await handle(message, results)
    if (performance.now() - committedAt >= commitEveryMs) await commitSaved(consumer)
  }
} catch (error) {
  if (!stop.signal.aborted) throw error
}
await commitSaved(consumer)
process.off("disconnect", orphaned)
process.disconnect()

async function handle(message: Message, results: Topic): Promise<void> {
  const { partition, offset } = message.position
  const current = work.get(partition) ?? (await restore(partition, results))
  current.count(offset, decodeFlight(JSON.parse(new TextDecoder().decode(message.payload ?? undefined))))
  const caughtUp = message.partitionHead === undefined || offset + 1n >= message.partitionHead
  if (current.unsaved < flightsPerSnapshot && !caughtUp) return
  if (current.unsaved > 0) {
    const snapshot = current.snapshot()
    await storeSnapshot(results, snapshot)
    report({ kind: "stored", partition, upTo: snapshot.upTo })
  }
  saved.set(partition, message)
}

async function restore(partition: number, results: Topic): Promise<PartitionWork> {
  forgotten.delete(partition)
  const restored = new PartitionWork(partition, (await newestSnapshots(results)).get(partition))
  // Another worker may have had the partition meanwhile.
  if (!forgotten.has(partition)) work.set(partition, restored)
  return restored
}

async function commitSaved(consumer: Consumer): Promise<void> {
  for (const [partition, message] of saved) {
    saved.delete(partition)
    try {
      await consumer.commit(message)
    } catch (error) {
      // The partition went to another worker meanwhile, which goes on from the snapshot.
      if (!(error instanceof NotAssignedError)) throw error
    }
  }
  committedAt = performance.now()
}

function release(partitions: readonly { readonly partition: number }[]): void {
  forget(partitions)
  report({ kind: "released", partitions: numbers(partitions) })
}

/** Other workers count on from the snapshots, so what is known here of these partitions is out of date. */
function forget(partitions: readonly { readonly partition: number }[]): void {
  for (const { partition } of partitions) {
    forgotten.add(partition)
    work.delete(partition)
    saved.delete(partition)
  }
}

function numbers(partitions: readonly { readonly partition: number }[]): number[] {
  return partitions.map(({ partition }) => partition)
}

function report(message: WorkerReport): void {
  process.send?.(message)
}
