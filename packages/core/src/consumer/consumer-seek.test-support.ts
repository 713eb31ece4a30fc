/** A consumer of one partition that is moved about. */

import type { StartAt } from "../partition/start-at.ts"
import type { Consumer } from "./consumer.ts"
import type { ConsumerOptions } from "./consumer-options.ts"
import { FakeClient } from "./fake-session.test-support.ts"
import { openConsumer } from "./partition-consumer.ts"

/** The consumer `worker`. */
export function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

/** Records 0 to `records` − 1 in batches of five, one each ten microseconds from 1000 on. */
export function filled(records: number): FakeClient {
  const client = new FakeClient()
  for (let from = 0; from < records; from += 5) {
    const batch = []
    for (let n = from; n < Math.min(from + 5, records); n++) {
      batch.push({ payload: new TextEncoder().encode(String(n)), timestampMicros: BigInt(1000 + 10 * n) })
    }
    client.log.put(client.place(), batch)
  }
  return client
}

/** What a call fails with, within so much virtual time. */
export async function failing(client: FakeClient, call: Promise<unknown>, ms = 0): Promise<unknown> {
  const outcome = call.then(
    (value) => value,
    (error) => error,
  )
  await client.clock.advance(ms)
  return outcome
}

/** Seeks, which takes no virtual time. */
export async function seek(client: FakeClient, consumer: Consumer, to: StartAt | "skip"): Promise<void> {
  const done = consumer.seek(0, to)
  await client.settle()
  await done
}
