/** Millrace's background producer through its public API: what is sent is confirmed as stored, and offsets are not asked for. */
import { connect, type TopicOptions } from "millrace"
import { keepOutstanding } from "../outstanding.ts"
import { type Contender, type Contestant, outstandingCalls } from "./contender.ts"

/** @param topicOptions Of the topic that is made for each round. */
export function millraceBackground(name: string, topicOptions: TopicOptions = {}): Contender {
  return {
    name,
    async open(url, topicName): Promise<Contestant> {
      const client = await connect(url)
      const topic = client.stream("bench").topic(topicName)
      await topic.ensure(1, topicOptions)
      const producer = topic.producer({ background: { maxInFlight: 0 } })
      await producer.init()
      return {
        async produce(records, batches) {
          await keepOutstanding(batches, outstandingCalls, () => producer.sendBatch(records))
          await producer.flush()
        },
        close: () => client.close(),
      }
    },
  }
}
