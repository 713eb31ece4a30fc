/** @platformatic/kafka, with batches as large and as many calls outstanding as ours. */
import { Admin, Consumer, Producer } from "@platformatic/kafka"
import { keepOutstanding } from "../outstanding.ts"
import { type Contender, type Contestant, outstandingCalls } from "./contender.ts"

export const platformatic: Contender = {
  name: "@platformatic/kafka 2.12.1",
  async open(url, topic): Promise<Contestant> {
    const base = { clientId: "bench", bootstrapBrokers: [new URL(url).host] }
    const admin = new Admin(base)
    await admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 })
    await admin.close()
    const producer = new Producer(base)
    return {
      produce(records, batches) {
        const messages = records.map((payload) => ({ topic, value: asBuffer(payload) }))
        return keepOutstanding(batches, outstandingCalls, () => producer.send({ messages, acks: -1 }))
      },
      async send(record) {
        await producer.send({ messages: [{ topic, value: asBuffer(record) }], acks: -1 })
      },
      async consume(count) {
        const consumer = new Consumer({ ...base, groupId: `${topic}-readers` })
        const stream = await consumer.consume({
          topics: [topic],
          mode: "earliest",
          autocommit: false,
          maxBytes: 4 << 20,
        })
        let left = count
        let bytes = 0
        for await (const message of stream) {
          bytes += message.value.length
          if (--left === 0) break
        }
        await stream.close()
        await consumer.close(true)
        return bytes
      },
      close: () => producer.close(),
    }
  },
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
}
