/** The official NATS client: publishes with a window of calls outstanding, and its own consume loop. */
import { jetstream, jetstreamManager } from "@nats-io/jetstream"
import { connect } from "@nats-io/transport-node"
import { keepOutstanding } from "../outstanding.ts"
import type { Contender, Contestant } from "./contender.ts"

/** Publishes outstanding at any time. */
const publishWindow = 2000

/** @param ids Whether messages carry ids, by which the server recognises a resend. */
export function natsClient(ids: boolean): Contender {
  return {
    name: ids ? "nats.js 3.4.0" : "nats.js 3.4.0, no ids",
    async open(url, topic): Promise<Contestant> {
      const connection = await connect({ servers: new URL(url).host })
      const manager = await jetstreamManager(connection)
      await manager.streams.add({ name: topic, subjects: [`bench.${topic}`] })
      const client = jetstream(connection)
      let published = 0
      const publish = (payload: Uint8Array): Promise<unknown> =>
        client.publish(`bench.${topic}`, payload, ids ? { msgID: `${topic}-${published++}` } : {})
      return {
        produce(records, batches) {
          let next = 0
          const one = (): Promise<unknown> => publish(records[next++ % records.length] as Uint8Array)
          return keepOutstanding(batches * records.length, publishWindow, one)
        },
        async send(record) {
          await publish(record)
        },
        async consume(count) {
          const consumer = await client.consumers.get(topic)
          const messages = await consumer.consume({ max_messages: 10_000 })
          let left = count
          let bytes = 0
          for await (const message of messages) {
            bytes += message.data.length
            if (--left === 0) break
          }
          await messages.close()
          return bytes
        },
        close: () => connection.close(),
      }
    },
  }
}
