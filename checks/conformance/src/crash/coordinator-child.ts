/**
 * A coordinator that prepares transactions, writes down what it decides, and completes them so, one after the other, until it is killed.
 * Arguments: URL, stream, journal, a name for this life. Reports `ready`, then `recovered <ending>`, and `begun`, `prepared`, `decided`,
 * `completed` of each transaction.
 */
import { connect } from "millrace"
import { coordinatorId, Journal, recordOf, recordsEach, recover, topicNames } from "./coordinating.ts"
import { report } from "./report.ts"

const [url, stream, path, life] = process.argv.slice(2)
if (url === undefined || stream === undefined || path === undefined) throw new Error("url, stream, journal, life")

// A parent that is gone kills nobody any more.
process.once("disconnect", () => process.exit())
process.once("message", async () => {
  const client = await connect(url, { stream })
  const topics = topicNames.map((name) => client.topic(name))
  const journal = new Journal(path)
  const producer = client.transactionalProducer({ transactionalId: coordinatorId })
  report("ready")
  report("recovered", (await recover(client, producer, journal)) ?? "nothing")
  for (let number = 0; ; number++) {
    const name = `${life}.${number}`
    const transaction = await producer.begin()
    await step("begun")
    for (const topic of topics) {
      for (let index = 0; index < recordsEach; index++) {
        const { payload, partition } = recordOf(name, index)
        await transaction.send(topic, payload, { partition })
      }
    }
    const token = await transaction.prepare()
    await step("prepared")
    // One life begins with the one, the next with the other.
    const commits = (Number(life) + number) % 2 === 0
    journal.write({ name, commits, token })
    await step("decided")
    await producer.complete(commits ? token : "")
    await step("completed")
  }
})

/** Tells, and leaves room for the kill that is due here. */
async function step(word: string): Promise<void> {
  report(word)
  await new Promise((resolve) => setTimeout(resolve, 2))
}
