/** Runs of a consumer over the fake client, observed from the start. */
import type { Consumer } from "../consumer/consumer.ts"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import type { FakeClient } from "../consumer/fake-session.test-support.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import type { RunOptions } from "./run-options.ts"

/** The consumer `worker` of partition 0. */
export function open(client: FakeClient, options?: ConsumerOptions): Consumer {
  return openConsumer(client.context, { topic: client.topic, name: "worker", partition: 0 }, options)
}

/** A run whose end is observed from the start. */
export function running(
  consumer: Consumer,
  handler: Parameters<Consumer["run"]>[0],
  options?: RunOptions,
): { done?: unknown; ended: boolean } {
  const state: { done?: unknown; ended: boolean } = { ended: false }
  consumer.run(handler, options).then(
    () => {
      state.ended = true
    },
    (error) => {
      state.ended = true
      state.done = error
    },
  )
  return state
}
