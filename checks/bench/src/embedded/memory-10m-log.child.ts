/** The process that `memory-10m` watches: writes and reads the log. Arguments: the directory, how many records. */
import { keepOutstanding } from "../outstanding.ts"
import { payloads } from "../payload.ts"
import { openLog } from "./log.ts"
import { answerInTurn } from "./memory-10m-phases.ts"

const batchRecords = 1000
const directory = process.argv[2] as string
const count = Number(process.argv[3])
const records = payloads(batchRecords, 100)

let opened: ReturnType<typeof openLog> | undefined

answerInTurn({
  async write() {
    opened = openLog(directory, 1)
    const producer = (await opened).topic.producer()
    await keepOutstanding(Math.ceil(count / batchRecords), 5, () => producer.sendBatch(records))
    await producer.shutdown()
  },
  async read() {
    const log = await (opened ?? openLog(directory, 1))
    await using consumer = log.topic.consumer(undefined, 0, { startAt: { kind: "first" } })
    for (let left = count; left > 0; left--) {
      const { value } = await consumer.next()
      if (value?.payload?.length !== 100) throw new Error(`record ${count - left} is not the one that was sent`)
    }
  },
  async end() {
    await (await opened)?.client.close()
  },
})
