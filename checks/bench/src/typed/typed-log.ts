/** A log that is filled with encoded flights once for all measurements of a benchmark. */
import { type Log, openLog } from "../embedded/log.ts"
import { keepOutstanding } from "../outstanding.ts"

/** Writes `count` records, the payloads one after the other and from the first again, into a log of one partition. */
export async function fillTyped(directory: string, payloads: readonly Uint8Array[], count: number): Promise<Log> {
  const log = await openLog(directory, 1)
  const producer = log.topic.producer()
  await keepOutstanding(Math.ceil(count / payloads.length), 5, () => producer.sendBatch(payloads))
  await producer.shutdown()
  return log
}
