import { kafkaJars } from "./kafka-program.ts"
import { natsProgram } from "./nats-program.ts"
import type { ServerKind } from "./need.ts"
import { serverNeed } from "./need.ts"

/**
 * Fetches the programs of servers that can be started here and are not there yet, so that no test waits for a download. Answers what could
 * not be fetched, and why; never rejects.
 */
export async function fetchServers(kinds: readonly ServerKind[]): Promise<string[]> {
  const outcomes = await Promise.allSettled(kinds.map(fetchOne))
  return outcomes.flatMap((outcome, index) =>
    outcome.status === "rejected" ? [`${kinds[index]} could not be fetched: ${outcome.reason}`] : [],
  )
}

async function fetchOne(kind: ServerKind): Promise<void> {
  if ((await serverNeed(kind, { to: "start" })) !== undefined) return
  if (kind === "kafka") await kafkaJars()
  if (kind === "nats") await natsProgram()
}
