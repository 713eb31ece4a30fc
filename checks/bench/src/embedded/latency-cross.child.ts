/**
 * The receiving process of `latency-cross`: answers, for each message, the nanoseconds since the time in its first 8 bytes.
 * `process.hrtime` is CLOCK_MONOTONIC, which all processes of a machine share. Ends when its channel is closed.
 */
import { openLog } from "./log.ts"

const log = await openLog(process.argv[2] as string, 1)
const consumer = log.topic.consumer(undefined, 0, { startAt: { kind: "first" } })
process.once("disconnect", () => void consumer.shutdown())
process.send?.("ready")
for await (const message of consumer) {
  const now = process.hrtime.bigint()
  const { buffer, byteOffset } = message.payload as Uint8Array
  process.send?.(Number(now - new DataView(buffer, byteOffset).getBigUint64(0, true)))
}
await log.client.close()
