/** What Kafka's own consumer finds in a topic. */
import { readLane } from "../crash/lane.ts"
import { javaRead } from "../foreign/java-client.ts"
import { text } from "../rig/records.ts"
import type { FoundRecord } from "./chaos-checker.ts"

/** Reads every record of a topic with the Java client. @param topic As Kafka names it. */
export async function readWithJava(url: string, topic: string): Promise<FoundRecord[]> {
  return (await javaRead(url, topic)).map(({ partition, offset, key, value }) => ({
    ...readLane(value),
    partition,
    offset,
    key: text(key),
  }))
}
