/**
 * A process that sends through a spool until it is killed: keyed records, numbered, in groups that are awaited. It begins when it is sent
 * the first number. Arguments: URL, stream, topic, directory of the spool. Reports `ready`, then `a <from> <to>` for each accepted group.
 */
import { once } from "node:events"
import { connect } from "millrace"
import { report } from "../crash/report.ts"
import { keyOf, payloadOf } from "./spool-record.ts"

/** Sends of a group, in turn: alone, a few, and more than a request holds. */
const groups = [1, 7, 120, 2, 40]

/** What one life sends at the most: the log stays small over many kills. */
const lifeLength = 20_000

const [url = "", stream = "", topic = "", directory = ""] = process.argv.slice(2)
const [first] = (await once(process, "message")) as [number]
const client = await connect(url, { stream, publishTimeoutMs: 2_000, publishRetryBackoffMs: 50 })
const producer = client.topic(topic).producer({ partitions: 3, background: { spool: directory, batchLength: 50 } })
await producer.init()
report("ready")

let number = first
for (let round = 0; number < first + lifeLength; round++) {
  const from = number
  const count = groups[round % groups.length] as number
  const sends = Array.from({ length: count }, () => {
    const key = keyOf(number)
    return producer.send(payloadOf(number++), { key })
  })
  await Promise.all(sends)
  report("a", from, number)
}
await new Promise(() => setInterval(() => {}, 1_000))
