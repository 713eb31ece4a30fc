/** What the official NATS client finds in the streams of a topic. */
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream"
import { connect } from "@nats-io/transport-node"
import { readLane } from "../crash/lane.ts"
import type { FoundRecord } from "./chaos-checker.ts"
import type { ChaosResult } from "./chaos-run.ts"

/** Reads every message of every partition with nats.js: each is a stream on a subject `millrace.<stream>.<topic>.<partition>.<life>`. */
export async function readWithNats(url: string, { stream, topic }: ChaosResult["topic"]): Promise<FoundRecord[]> {
  const connection = await connect({ servers: new URL(url).host })
  try {
    const manager = await jetstreamManager(connection)
    const found: FoundRecord[] = []
    for await (const { config, state } of manager.streams.list(`millrace.${stream}.${topic}.*.*`)) {
      const partition = Number(config.subjects[0]?.split(".")[3])
      if (state.messages === 0) continue
      const info = await manager.consumers.add(config.name, {
        ack_policy: AckPolicy.None,
        deliver_policy: DeliverPolicy.All,
        mem_storage: true,
      })
      const consumer = await jetstream(connection).consumers.get(config.name, info.name)
      const messages = await consumer.consume({ max_messages: 5_000 })
      for await (const message of messages) {
        const key = message.headers?.get("millrace-key") ?? ""
        found.push({
          ...readLane(message.data),
          partition,
          offset: BigInt(message.seq - 1),
          key: Buffer.from(key, "base64").toString(),
        })
        if (message.seq >= state.last_seq) break
      }
      await messages.close()
    }
    return found
  } finally {
    await connection.close()
  }
}
