/** Millrace through its public API, as users call it. */
import { connect } from "millrace"
import { keepOutstanding } from "../outstanding.ts"
import { type Contender, type Contestant, outstandingCalls } from "./contender.ts"

export const millrace: Contender = {
  name: "Millrace",
  async open(url, name): Promise<Contestant> {
    const client = await connect(url)
    const topic = client.stream("bench").topic(name)
    await topic.ensure(1)
    const producer = topic.producer()
    await producer.init()
    return {
      produce: (records, batches) => keepOutstanding(batches, outstandingCalls, () => producer.sendBatch(records)),
      async send(record) {
        await producer.send(record)
      },
      async consume(count) {
        await using consumer = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
        let bytes = 0
        for (let left = count; left > 0; left--) {
          const { value } = await consumer.next()
          const payload = value?.payload as Uint8Array
          bytes += payload.length
        }
        return bytes
      },
      close: () => client.close(),
    }
  },
}
