/**
 * A worker of a queue: takes messages and acknowledges each, confirmed, until it is killed. Arguments: URL, stream, and how it takes them,
 * `pull` or `run`. Reports `ready`, then `h <partition> <offset> <deliveries>` before it acknowledges a message, and `a` with the same
 * words once it knows that the acknowledgement counts.
 */
import { connect, type QueueMessage } from "millrace"
import { workQueue, workTopic } from "./queue-working.ts"
import { report } from "./report.ts"

const [url, stream, way] = process.argv.slice(2)
if (url === undefined || stream === undefined) throw new Error("url, stream, way")

// A parent that is gone kills nobody any more.
process.once("disconnect", () => process.exit())
process.once("message", async () => {
  const client = await connect(url, { stream })
  const consumer = await client.topic(workTopic).queue(workQueue).consumer()
  report("ready")
  if (way === "run") return await consumer.run(work, { concurrency: 4 })
  for (;;) await Promise.all((await consumer.pull({ max: 8 })).map(work))
})

async function work(message: QueueMessage): Promise<void> {
  const { partition, offset } = message.position
  const words = [partition, offset, message.deliveries] as const
  report("h", ...words)
  if (offset % 3n === 0n) await new Promise((resolve) => setTimeout(resolve, 1))
  if (await message.ack({ confirm: true })) report("a", ...words)
}
