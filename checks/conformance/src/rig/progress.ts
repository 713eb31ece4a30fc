/** What consumers have stored, seen from outside. */
import type { Topic } from "millrace"
import { until } from "./deadline.ts"

/** The offset that is stored as handled for a named consumer of partition 0, as another one of that name sees it. */
export async function storedBy(topic: Topic, name: string): Promise<bigint | undefined> {
  const observer = topic.consumer(name, 0, { commitPolicy: { kind: "disabled" } })
  try {
    return (await observer.storedOffset())?.stored
  } finally {
    await observer.shutdown()
  }
}

/** Waits for a store that nobody waits for. */
export async function storedBecomes(topic: Topic, name: string, offset: bigint): Promise<void> {
  await until(`"${name}" to store ${offset}`, async () => ((await storedBy(topic, name)) === offset ? true : undefined))
}
