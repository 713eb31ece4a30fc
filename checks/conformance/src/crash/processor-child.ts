/**
 * A processor that makes one record of each of another topic, exactly once, until it is killed. Arguments: URL, stream, session time-out
 * in ms. Reports `ready`, then `h <partition> <offset>` for each message that its handler was given.
 */
import { connect } from "millrace"
import { inputOf, inputTopic, outputTopic, processGroup } from "./processing.ts"
import { report } from "./report.ts"

const [url, stream, sessionTimeoutMs] = process.argv.slice(2)
if (url === undefined || stream === undefined) throw new Error("url, stream, session time-out")

// A parent that is gone kills nobody any more.
process.once("disconnect", () => process.exit())
process.once("message", async () => {
  const client = await connect(url, { stream })
  const processor = client.process({
    from: {
      topic: client.topic(inputTopic),
      group: processGroup,
      sessionTimeoutMs: Number(sessionTimeoutMs),
    },
    to: client.topic(outputTopic),
    // Small ones, so that many transactions begin and end within a life.
    batchLength: 15,
    async handler(message) {
      const { partition, offset } = message.position
      report("h", partition, offset)
      // Otherwise a whole batch is handled before anything else happens.
      if (offset % 5n === 0n) await new Promise((resolve) => setTimeout(resolve, 1))
      return { payload: inputOf(message), partition }
    },
  })
  report("ready")
  await processor.done
})
