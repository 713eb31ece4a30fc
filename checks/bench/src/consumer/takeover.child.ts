/** The member that `takeover` kills. Arguments: the connection string, the topic. Says `ready` once it has read a message of its share. */
import { connect } from "millrace"

const [url, topicName] = process.argv.slice(2) as [string, string]
const client = await connect(url, { stream: "bench" })
const consumer = await client.topic(topicName).consumerGroup("bench").consumer({ sessionTimeoutMs: 6_000 })
const partitions = new Set<number>()
let told = false
for await (const message of consumer) {
  partitions.add(message.position.partition)
  if (told || partitions.size < 6) continue
  told = true
  process.send?.([...partitions])
}
