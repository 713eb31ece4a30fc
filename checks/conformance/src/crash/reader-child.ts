/**
 * Readers of several kinds that read until they are killed, all in one process. Arguments: URL, stream, topic, kinds with commas, session time-out of members. Reports
 * `ready`, then `h <kind> <partition> <offset> <lane> <counter>` for each message once it is handled; with `onRead`, once it is there.
 */
import { type Consumer, connect, type Message, type Topic } from "millrace"
import { readLane } from "./lane.ts"
import { type ReaderKind, readAhead, readerKinds } from "./reader-kinds.ts"
import { report } from "./report.ts"

/** The most messages that `run` handles at the same time. */
const concurrency = 8

const [url, stream, name, kindNames, sessionTimeoutMs] = process.argv.slice(2)
if (url === undefined || stream === undefined || name === undefined || kindNames === undefined)
  throw new Error("url, stream, topic, kinds, session time-out")
const kinds = readerKinds.filter((kind) => kindNames.split(",").includes(kind.name))

// A parent that is gone kills nobody any more.
process.once("disconnect", () => process.exit())
process.once("message", async () => {
  const client = await connect(url)
  const topic = client.stream(stream).topic(name)
  report("ready")
  await Promise.all(kinds.map((kind) => read(topic, kind)))
})

async function read(topic: Topic, kind: ReaderKind): Promise<void> {
  const consumer = await open(topic, kind)
  if (kind.how === "run") await consumer.run((message) => handle(message, kind), { concurrency, order: "key" })
  else if (kind.how === "marks") await marks(consumer, kind)
  else if (kind.how === "batches") await batches(consumer, kind)
  else await loop(consumer, kind)
}

async function open(topic: Topic, { name: reader, commitPolicy, member }: ReaderKind): Promise<Consumer> {
  const options = { commitPolicy, batchLength: 20, prefetchRecords: readAhead } as const
  if (member === undefined) return topic.consumer(reader, 0, options)
  return topic.consumerGroup(reader).consumer({ ...options, sessionTimeoutMs: Number(sessionTimeoutMs) })
}

async function loop(consumer: Consumer, kind: ReaderKind): Promise<void> {
  let handled = 0
  for await (const message of consumer) {
    tell(message, kind)
    handled++
    // Otherwise all that is there is handled before anything is stored.
    if (handled % 4 === 0) await pause(1)
    if (kind.how === "commits" && handled % 7 === 0) await consumer.commit(message)
  }
}

/** Messages of a few at a time are marked from the last to the first. */
async function marks(consumer: Consumer, kind: ReaderKind): Promise<void> {
  const open: Message[] = []
  for await (const message of consumer) {
    open.push(message)
    if (open.length < 5) continue
    await pause(1)
    for (const one of open.splice(0).toReversed()) {
      tell(one, kind)
      consumer.mark(one)
    }
  }
}

async function batches(consumer: Consumer, kind: ReaderKind): Promise<void> {
  for await (const batch of consumer.batches()) {
    for (const message of batch) tell(message, kind)
    await pause(1)
  }
}

/** Takes 0 to 3 ms, so that later messages overtake. */
async function handle(message: Message, kind: ReaderKind): Promise<void> {
  await pause(Number(message.position.offset % 4n))
  tell(message, kind)
}

function tell(message: Message, { name: reader }: ReaderKind): void {
  const { partition, offset } = message.position
  const { lane, counter } = readLane(message.payload)
  report("h", reader, partition, offset, lane, counter)
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
