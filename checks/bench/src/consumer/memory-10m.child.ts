/** The process that `memory-10m` watches: reads the log of another one. Arguments: the directory, how many records, the limits of the read-ahead. */
import { openLog } from "../embedded/log.ts"

const [directory, count, prefetchBytes] = process.argv.slice(2) as [string, string, string]

const log = await openLog(directory, 1)
process.once("message", () => void read().catch(fail))
process.once("disconnect", () => void log.client.close().catch(fail))
process.send?.("ready")

async function read(): Promise<void> {
  const consumer = log.topic.consumer(`bench-${process.pid}`, 0, {
    startAt: { kind: "first" },
    prefetchBytes: Number(prefetchBytes),
  })
  for (let left = Number(count); left > 0; left--) {
    const { value } = await consumer.next()
    if (value?.payload?.length !== 100)
      throw new Error(`the ${left}th record from the end is not the one that was sent`)
  }
  await consumer.shutdown()
  process.send?.("read")
}

function fail(error: unknown): void {
  console.error(error)
  process.exit(1)
}
