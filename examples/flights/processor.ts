/**
 * One processor, a process of its own: enters each flight into the ledger, exactly once. An entry and the group's progress over its flight are
 * committed in one transaction, so there is nothing here that would have to be idempotent. What it says to its parent is for show.
 */
import process from "node:process"
import { connect, json, output } from "millrace"
import { decodeFlight } from "./flights.ts"
import { typedLedger } from "./ledger.ts"
import { flightsTopic, ledgerTopic, processorsGroupName } from "./topics.ts"
import type { WorkerReport, WorkerTask } from "./worker-process.ts"

/** Small, so that something is at stake for a while when this process is killed, and progress can be seen. */
const flightsPerTransaction = 500

const { url, stream, sessionTimeoutMs } = JSON.parse(process.argv[2] ?? "") as WorkerTask
await using client = await connect(url)
const processor = client.process({
  from: {
    topic: flightsTopic(client, stream).json(json(decodeFlight)),
    group: processorsGroupName(stream),
    startAt: { kind: "first" },
    sessionTimeoutMs,
  },
  to: typedLedger(ledgerTopic(client, stream)),
  batchLength: flightsPerTransaction,
  handler: (message) => {
    if (message.kind !== "record") return undefined
    const { partition, offset } = message.position
    report({ kind: "delivered", partition, offset })
    const { origin: airport, delay } = message.value
    return output({ partition, offset: String(offset), airport, delay }, { key: airport })
  },
})
processor.on({
  assigned: (partitions) => report({ kind: "assigned", partitions: numbers(partitions) }),
  revoked: (partitions) => report({ kind: "released", partitions: numbers(partitions) }),
  lost: (partitions) => report({ kind: "released", partitions: numbers(partitions) }),
})
process.on("message", () => processor.shutdown().catch(() => process.exit(1)))
// Without its parent, it would go on unwatched.
const orphaned = (): never => process.exit(1)
process.on("disconnect", orphaned)
await processor.done
process.off("disconnect", orphaned)
process.disconnect()

function numbers(partitions: readonly { readonly partition: number }[]): number[] {
  return partitions.map(({ partition }) => partition)
}

function report(message: WorkerReport): void {
  process.send?.(message)
}
