/** The process that `idle-100` watches: a member of a group with nothing to read. Arguments: the connection string, the topic. */
import { connect } from "millrace"

const [url, topicName] = process.argv.slice(2) as [string, string]
const client = await connect(url, { stream: "bench" })
const consumer = await client.topic(topicName).consumerGroup("bench").consumer()
const reading = consumer.next()
reading.catch(fail)

process.on("message", () => {
  const { user, system } = process.cpuUsage()
  process.send?.(user + system)
})
process.once("disconnect", () => void client.close().catch(fail))
process.send?.("ready")

function fail(error: unknown): void {
  console.error(error)
  process.exit(1)
}
