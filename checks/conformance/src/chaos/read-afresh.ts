/** A topic read by a client that had no part in writing it. */
import { connect } from "millrace"
import { readLane } from "../crash/lane.ts"
import { text } from "../rig/records.ts"
import type { FoundRecord } from "./chaos-checker.ts"
import type { ChaosResult } from "./chaos-run.ts"

/** Every record from the first to the present end of each partition. */
export async function readAfresh(url: string, { stream, topic: name }: ChaosResult["topic"]): Promise<FoundRecord[]> {
  const client = await connect(url)
  try {
    const topic = client.stream(stream).topic(name)
    const found: FoundRecord[] = []
    for (const { partition, first, end } of await topic.watermarks()) {
      if (first === end) continue
      await using reader = topic.consumer(undefined, partition, { startAt: { kind: "first" } })
      for await (const { payload, key, position } of reader) {
        found.push({ ...readLane(payload), partition, offset: position.offset, key: text(key) })
        if (position.offset + 1n >= end) break
      }
    }
    return found
  } finally {
    await client.close()
  }
}
