/** The other process of `memory-10m`: the same records into a bare file and out of it. Arguments: the directory, how many records. */
import { join } from "node:path"
import { keepOutstanding } from "../outstanding.ts"
import { joined, payloads } from "../payload.ts"
import { openBareFile } from "../reference/bare-file.ts"
import { scanFile } from "../reference/file-scan.ts"
import { answerInTurn } from "./memory-10m-phases.ts"

const batchRecords = 1000
const path = join(process.argv[2] as string, "bare")
const count = Number(process.argv[3])
const chunk = joined(payloads(batchRecords, 100))

answerInTurn({
  async write() {
    const file = await openBareFile(path, chunk)
    await keepOutstanding(Math.ceil(count / batchRecords), 5, () => file.append())
    await file.close()
  },
  async read() {
    await scanFile(path)
  },
  async end() {},
})
