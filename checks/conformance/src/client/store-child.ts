/** A process of its own for tests of opening and ending. Arguments: what to do (`connect`, `close`), URL. */
import { MillraceError } from "@millrace/contract"
import { connect } from "millrace"

const [task, url] = process.argv.slice(2)
if (task === undefined || url === undefined) throw new Error("task, url")

/** Prints the kind and message of the error that `connect` fails with. */
async function tryToConnect(): Promise<void> {
  try {
    const client = await connect(url)
    await client.close()
    console.log("connected")
  } catch (error) {
    console.log(error instanceof MillraceError ? `${error.kind}: ${error.message}` : `untyped: ${error}`)
  }
}

/** Opens one of everything, closes the client, and leaves the rest to the event loop. */
async function closeEverything(): Promise<void> {
  const client = await connect(url)
  const topic = client.stream("s").topic("t")
  await topic.ensure(2)
  const producer = topic.producer()
  await producer.send(new TextEncoder().encode("r"))
  const consumer = topic.consumer("reader", 0)
  const member = await topic.consumerGroup("g").consumer()
  const waiting = Promise.allSettled([consumer.next(), consumer.next(), member.next(), member.next()])
  await client.close()
  await waiting
  console.log("closed")
}

await (task === "close" ? closeEverything() : tryToConnect())
