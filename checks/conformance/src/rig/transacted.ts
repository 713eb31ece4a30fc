/** What the chapters of transactions look at: the contents of topics, and progress that was stored. */
import type { Client, Message, ProcessOptions, Topic, TransactionalOptions, TransactionalProducer } from "millrace"
import type { ClientRig } from "./client-rig.ts"
import { until } from "./deadline.ts"
import { text } from "./records.ts"

/** The messages of a topic, up to its end, as a reader of no group sees them: by partition, then in their order. */
export async function contentsOf(topic: Topic, options: Parameters<Topic["replay"]>[0] = {}): Promise<Message[]> {
  const { partitions } = await topic.describe()
  const messages: Message[][] = Array.from({ length: partitions }, () => [])
  await using cursor = await topic.replay(options)
  for await (const result of cursor.stream()) {
    if (result.kind === "error") throw result.error
    if (result.kind === "record") messages[result.message.position.partition]?.push(result.message.copy())
  }
  return messages.flat()
}

/** The same, as texts. A tombstone is the empty text. */
export async function contentsText(topic: Topic): Promise<string[]> {
  return (await contentsOf(topic)).map(({ payload }) => text(payload))
}

/** What a group has handled of each partition that it has stored anything of. */
export async function groupProgress(topic: Topic, group: string): Promise<Record<number, bigint>> {
  const consumer = await topic.consumerGroup(group).consumer({ commitPolicy: { kind: "disabled" } })
  try {
    const { partitions } = await topic.describe()
    const progress: Record<number, bigint> = {}
    for (let partition = 0; partition < partitions; partition++) {
      const stored = await consumer.storedOffset(partition)
      if (stored?.stored !== undefined) progress[partition] = stored.stored
    }
    return progress
  } finally {
    await consumer.shutdown()
  }
}

/** A producer that is ready, under an id of its own. Closed with the client, if the test does not. */
export async function readyProducer(
  rig: ClientRig,
  options: Partial<TransactionalOptions> = {},
  client: Client = rig.client,
): Promise<TransactionalProducer> {
  const producer = client.transactionalProducer({ transactionalId: rig.name("transactions"), ...options })
  await producer.init()
  return producer
}

/** Whether the backend has transactions; what it lacks is refused, which a test of its own says. */
export function hasTransactions({ client }: ClientRig): boolean {
  return client.manifest.transactions.supported
}

/** Waits for a topic to have so many records. */
export async function holds(topic: Topic, count: number): Promise<void> {
  await until(`${count} records in topic "${topic.name}"`, async () => {
    const marks = await topic.watermarks()
    return marks.reduce((sum, { end }) => sum + Number(end), 0) >= count ? true : undefined
  })
}

/** Whether messages can be processed exactly once: that takes transactions that hold the offsets of groups. */
export function canProcess({ client }: ClientRig): boolean {
  const { transactions, groups } = client.manifest
  return transactions.supported && transactions.offsets.supported && groups.supported
}

/** Options of a processor of group "workers" that makes one record of each, as it is. */
export function copying(input: Topic, target: Topic): ProcessOptions<Topic, Topic> {
  return {
    from: { topic: input, group: "workers", startAt: { kind: "first" } },
    to: target,
    handler: (message: Message) => message.copy().payload as Uint8Array,
  }
}
