/** An embedded log that is filled once for all measurements of a benchmark. */
import { writeFileSync } from "node:fs"
import { keepOutstanding } from "../outstanding.ts"
import { joined } from "../payload.ts"
import { records } from "../producer/load.ts"
import { type Log, openLog } from "./log.ts"

/** Writes `count` records of 100 bytes into a log with one partition; with `file` also the same payloads one behind the other. */
export async function fillLog(
  directory: string,
  { count, file }: { readonly count: number; readonly file?: string },
): Promise<Log> {
  const batches = Math.ceil(count / records.length)
  if (file !== undefined) {
    const chunk = joined(records)
    for (let batch = 0; batch < batches; batch++) writeFileSync(file, chunk, { flag: batch === 0 ? "wx" : "a" })
  }
  const log = await openLog(directory, 1)
  const producer = log.topic.producer()
  await keepOutstanding(batches, 5, () => producer.sendBatch(records))
  await producer.shutdown()
  return log
}
