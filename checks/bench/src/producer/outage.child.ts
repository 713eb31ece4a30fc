/**
 * The process that `outage` watches: a background producer that goes on sending while its server is gone. Arguments: the connection
 * string, the topic, `maxBufferBytes`. It answers one message at a time, see `outage-report.ts`.
 */
import { connect, type PublishFailedError } from "millrace"
import type { OutageReport } from "./outage-report.ts"

const [url, topicName, maxBufferBytes] = process.argv.slice(2) as [string, string, string]

/** 10,000 sends a second, until the buffer is full. */
const sendsPerTurn = 100
const turnMs = 10
const recordBytes = 100

const client = await connect(url, { publishRetries: 100_000, stream: "bench" })
const topic = client.topic(topicName)
await topic.ensure(1)
const failures: PublishFailedError[] = []
const producer = topic.producer({
  onUnknown: "resend",
  background: { maxBufferBytes: Number(maxBufferBytes), onError: (error) => void failures.push(error) },
})
await producer.init()

let sent = 0
let sending: Promise<void> | undefined
let stopped = false
/** The longest time that one send waited to be accepted, in ms. */
let longestMs = 0

const steps: Readonly<Record<string, () => Promise<unknown>>> = {
  async begin() {
    stopped = false
    sending = load()
    sending.catch(() => {})
  },
  usage: async () => report(),
  async stop() {
    stopped = true
    await sending
    await producer.flush()
    if (failures.length > 0) throw failures[0]
    return report()
  },
  check,
}

process.on("message", (name: string) => void answer(name))
process.once("disconnect", () => void client.close().catch(fail))
process.send?.("ready")

async function answer(name: string): Promise<void> {
  try {
    const result = await steps[name]?.()
    if (process.connected) process.send?.(result ?? name)
  } catch (error) {
    fail(error)
  }
}

/** One send after the other is awaited, so that a full buffer holds the program back as it would hold back a user's. */
async function load(): Promise<void> {
  while (!stopped) {
    for (let each = 0; each < sendsPerTurn && !stopped; each++) {
      const startMs = performance.now()
      await producer.send(numbered(sent))
      longestMs = Math.max(longestMs, performance.now() - startMs)
      sent++
    }
    await new Promise((resolve) => setTimeout(resolve, turnMs))
  }
}

function numbered(number: number): Uint8Array {
  const payload = new Uint8Array(recordBytes)
  new DataView(payload.buffer).setUint32(0, number)
  return payload
}

function report(): OutageReport {
  const { user, system } = process.cpuUsage()
  return { sent, cpuMicros: user + system, longestMs }
}

/** Reads all of it. @throws Error when a record is missing, doubled or out of its order */
async function check(): Promise<void> {
  const consumer = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
  for (let expected = 0; expected < sent; expected++) {
    const { payload } = await consumer.nextWithin(30_000)
    const { buffer, byteOffset, byteLength } = payload as Uint8Array
    const number = new DataView(buffer, byteOffset, byteLength).getUint32(0)
    if (number !== expected) throw new Error(`record ${number} stands where ${expected} should be`)
  }
  await consumer.shutdown()
  const [partition] = await topic.watermarks()
  const stored = partition === undefined ? 0n : partition.end - partition.first
  if (stored !== BigInt(sent)) throw new Error(`${stored} records stand where ${sent} were sent`)
}

function fail(error: unknown): void {
  console.error(error)
  process.exit(1)
}
