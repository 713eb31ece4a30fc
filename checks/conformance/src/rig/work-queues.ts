/** Work queues in tests: tests that only backends with queues run, filled queues, and what comes of them. */
import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import type { Client, Message, Queue, QueueConsumer, QueueInfo, QueueMessage, QueueOptions, Topic } from "millrace"
import { type ClientRig, fillOneByOne } from "./client-rig.ts"
import { patienceMs, until } from "./deadline.ts"
import { text } from "./records.ts"

/** A test that a backend without queues skips, with the manifest's reason: what is refused there is a test of its own. */
export function queueTest(rig: ClientRig, name: string, body: (t: TestContext) => Promise<void>): void {
  test(name, async (t) => {
    const { queues } = rig.client.manifest
    if (!queues.supported) return t.skip(queues.reason)
    await body(t)
  })
}

/** A topic of one partition with these payloads, each in a batch of its own, and a queue over it. */
export async function filledQueue(
  rig: ClientRig,
  payloads: readonly string[],
  options?: QueueOptions,
): Promise<{ readonly topic: Topic; readonly queue: Queue }> {
  const topic = await rig.topic()
  await fillOneByOne(topic, payloads)
  return { topic, queue: topic.queue("work", options) }
}

const neighbours = new WeakMap<ClientRig, Promise<Client>>()

/** A client that shares the log with the rig's: another one, the same for all tests, or the rig's where each has a log of its own. */
export async function neighbour(rig: ClientRig): Promise<Client> {
  if (rig.under.isolated !== undefined) return rig.client
  const client = neighbours.get(rig) ?? rig.connect()
  neighbours.set(rig, client)
  return await client
}

/** A client that a test may close: of the rig's log, or of one of its own where each client has its own. */
export async function mortal(rig: ClientRig): Promise<Client> {
  return await rig.connect(rig.under.isolated === undefined ? "same" : "fresh")
}

/** The next `count` messages, unsettled; fails when they do not come. */
export async function pulled(consumer: QueueConsumer, count: number): Promise<QueueMessage[]> {
  const messages: QueueMessage[] = []
  while (messages.length < count) {
    const some = await consumer.pull({ max: count - messages.length, maxWaitMs: patienceMs })
    assert.ok(some.length > 0, `${messages.length} of ${count} messages came`)
    messages.push(...some)
  }
  return messages
}

export async function pulledOne(consumer: QueueConsumer): Promise<QueueMessage> {
  return (await pulled(consumer, 1))[0] as QueueMessage
}

/** Payload and delivery count, as `payload#count`. */
export function shown(message: QueueMessage): string {
  return `${text(message.payload)}#${message.deliveries}`
}

/** The same of each. */
export function deliveriesOf(messages: readonly QueueMessage[]): string[] {
  return messages.map(shown)
}

/** Fails when something comes. */
export async function nothingPulled(consumer: QueueConsumer, withinMs = 60): Promise<void> {
  assert.deepEqual(deliveriesOf(await consumer.pull({ max: 10, maxWaitMs: withinMs })), [], "nothing was due")
}

/** Waits until what the queue tells of itself is as it should be. */
export async function untilInfo(queue: Queue, what: string, check: (info: QueueInfo) => boolean): Promise<QueueInfo> {
  return await until(`queue ${queue.name} to have ${what}`, async () => {
    const info = await queue.info()
    return check(info) ? info : undefined
  })
}

/** Waits until everything is settled. */
export async function untilDone(queue: Queue): Promise<void> {
  await untilInfo(
    queue,
    "nothing left",
    ({ pending, ackPending, delayed }) => pending === 0n && ackPending + delayed === 0,
  )
}

/** Everything that a topic has, as it is stored or decrypted with what is given. */
export async function contentsOf(topic: Topic, options: Parameters<Topic["replay"]>[0] = {}): Promise<Message[]> {
  const messages: Message[] = []
  await using cursor = await topic.replay(options)
  for await (const result of cursor.stream()) {
    if (result.kind === "error") throw result.error
    if (result.kind === "record") messages.push(result.message.copy())
  }
  return messages
}
