/**
 * A member of a group that reads until it is killed. Arguments: URL, partitions, policy. Reports `ready`, then
 * `h <partition> <offset> <lane> <counter>` for each message when it is handled, before anything may commit it.
 */
import { type CommitPolicy, connect } from "millrace"
import { readLane } from "./lane.ts"
import { report } from "./report.ts"

/** How long a message takes where the policy does not make the next one wait for the store: otherwise all is handled before anything is stored. */
const handlingMs = 1

/** With policy `disabled` each so many messages are committed by hand. */
const commitEvery = 7

const [url, partitionsText, policy] = process.argv.slice(2)
if (url === undefined || partitionsText === undefined || policy === undefined)
  throw new Error("url, partitions, policy")

// A parent that is gone kills nobody any more.
process.once("disconnect", () => process.exit())
process.once("message", async () => {
  const client = await connect(url)
  const topic = client.stream("crash").topic("lanes")
  await topic.ensure(Number(partitionsText))
  const consumer = await topic.consumerGroup("readers").consumer({
    batchLength: 50,
    commitPolicy: { kind: policy } as CommitPolicy,
    sessionTimeoutMs: 1_000,
  })
  report("ready")
  let handled = 0
  for await (const message of consumer) {
    const { partition, offset } = message.position
    const { lane, counter } = readLane(message.payload)
    report("h", partition, offset, lane, counter)
    handled++
    if (policy === "polling" || policy === "all") await new Promise((resolve) => setTimeout(resolve, handlingMs))
    if (policy === "disabled" && handled % commitEvery === 0) await consumer.commit(message)
  }
})
