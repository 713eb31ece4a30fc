/**
 * A process that writes until it is killed: single sends with and without waiting, batches, keyed and balanced sends, all at once.
 * Arguments: URL, writer name, partitions. Reports `ready`, then `c <lane> <counter> <partition> <offset>` for each confirmed record.
 */
import { connect, type Producer, type SendResult, type Topic } from "millrace"
import { lanePayload } from "./lane.ts"
import { report } from "./report.ts"

/** Records a lane sends before it rests: the store stays small over many kills. */
const laneLength = 3_000
const window = 64

const [url, writer, partitionsText] = process.argv.slice(2)
if (url === undefined || writer === undefined || partitionsText === undefined)
  throw new Error("url, writer, partitions")
const partitions = Number(partitionsText)

// A parent that is gone kills nobody any more.
process.once("disconnect", () => process.exit())
process.once("message", async () => {
  const client = await connect(url)
  const topic = client.stream("crash").topic("lanes")
  await topic.ensure(partitions)
  report("ready")
  await Promise.all([
    single(topic.producer(), `${writer}.single`, 0),
    awaited(topic.producer(), `${writer}.awaited`, 1 % partitions),
    batches(topic.producer(), `${writer}.batch`, 2 % partitions),
    keyed(topic.producer(), `${writer}.keyed`),
    balanced(topic, `${writer}.xbalanced`),
  ])
  report("rested")
})

/** Sends that are not awaited, a window of them under way. */
async function single(producer: Producer, lane: string, partition: number): Promise<void> {
  await windowed(lane, (payload) => producer.send(payload, { partition }))
}

async function awaited(producer: Producer, lane: string, partition: number): Promise<void> {
  for (let counter = 0; counter < laneLength; counter++) {
    confirm(lane, counter, await producer.send(lanePayload(lane, counter), { partition }))
  }
}

/** Batches of 1 to 200 records, two at a time. */
async function batches(producer: Producer, lane: string, partition: number): Promise<void> {
  let counter = 0
  let before: Promise<void> = Promise.resolve()
  for (let size = 1; counter < laneLength; size = (size * 7 + 3) % 200 || 1) {
    const first = counter
    counter += size
    const records = Array.from({ length: size }, (_, index) => lanePayload(lane, first + index))
    const result = producer.sendBatch(records, { partition }).then((sent) => confirm(lane, first, sent))
    await before
    before = result
  }
  await before
}

async function keyed(producer: Producer, lane: string): Promise<void> {
  await windowed(lane, (payload) => producer.send(payload, { key: lane }))
}

/** `publish` without a key: order is promised in each partition only. */
async function balanced(topic: Topic, lane: string): Promise<void> {
  for (let counter = 0; counter < laneLength; counter++) {
    confirm(lane, counter, await topic.publish().payload(lanePayload(lane, counter)).send())
  }
}

async function windowed(lane: string, send: (payload: Uint8Array) => Promise<SendResult>): Promise<void> {
  const under: Promise<void>[] = []
  for (let counter = 0; counter < laneLength; counter++) {
    const at = counter
    under.push(send(lanePayload(lane, at)).then((sent) => confirm(lane, at, sent)))
    if (under.length >= window) await under.shift()
  }
  await Promise.all(under)
}

function confirm(lane: string, first: number, sent: SendResult): void {
  let counter = first
  for (const { partition, baseOffset, count } of sent.confirmations) {
    for (let index = 0; index < count; index++) report("c", lane, counter++, partition, baseOffset + BigInt(index))
  }
}
