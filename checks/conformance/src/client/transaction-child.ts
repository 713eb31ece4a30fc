/**
 * A process of its own with a transaction of one record. Arguments: what to do, URL, stream, topic, transactional id, payload. `prepare`
 * prints the token and dies by SIGKILL; `leave` dies with the transaction open; `commit` commits and ends well.
 */
import { writeSync } from "node:fs"
import { connect } from "millrace"

const [task, url, stream, name, transactionalId, payload] = process.argv.slice(2)
if (url === undefined || stream === undefined || name === undefined || transactionalId === undefined)
  throw new Error("task, url, stream, topic, transactional id, payload")

const client = await connect(url)
const producer = client.transactionalProducer({ transactionalId, lingerMs: 0 })
await producer.init()
const transaction = await producer.begin()
await transaction.send(client.stream(stream).topic(name), new TextEncoder().encode(payload))
if (task === "commit") {
  await transaction.commit()
  await client.close()
} else {
  if (task === "prepare") writeSync(1, await transaction.prepare())
  process.kill(process.pid, "SIGKILL")
}
