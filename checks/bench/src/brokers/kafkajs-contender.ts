/** KafkaJS, with batches as large and as many calls outstanding as ours. */
import { Kafka, logLevel, Partitioners } from "kafkajs"
import { keepOutstanding } from "../outstanding.ts"
import { type Contender, type Contestant, outstandingCalls } from "./contender.ts"

export const kafkajs: Contender = {
  name: "kafkajs 2.2.4",
  async open(url, topic): Promise<Contestant> {
    const kafka = new Kafka({ brokers: [new URL(url).host], logLevel: logLevel.NOTHING })
    const admin = kafka.admin()
    await admin.connect()
    await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }], waitForLeaders: true })
    await admin.disconnect()
    const producer = kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner,
      allowAutoTopicCreation: false,
    })
    await producer.connect()
    return {
      produce(records, batches) {
        const messages = records.map((payload) => ({ value: asBuffer(payload) }))
        return keepOutstanding(batches, outstandingCalls, () => producer.send({ topic, messages, acks: -1 }))
      },
      async send(record) {
        await producer.send({ topic, messages: [{ value: asBuffer(record) }], acks: -1 })
      },
      async consume(count) {
        const consumer = kafka.consumer({ groupId: `${topic}-readers`, maxBytesPerPartition: 4 << 20 })
        await consumer.connect()
        await consumer.subscribe({ topic, fromBeginning: true })
        const all = Promise.withResolvers<void>()
        let left = count
        let bytes = 0
        await consumer.run({
          eachBatch: async ({ batch }) => {
            for (const message of batch.messages) {
              bytes += message.value?.length ?? 0
              left--
            }
            if (left <= 0) all.resolve()
          },
        })
        await all.promise
        await consumer.disconnect()
        return bytes
      },
      close: () => producer.disconnect(),
    }
  },
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
}
