/** The reference of the durable rows: the same bytes appended to a bare file in a worker thread, with a sync for what waits. */
import { join } from "node:path"
import { keepOutstanding } from "../outstanding.ts"
import type { Arm } from "../pairs.ts"
import { joined } from "../payload.ts"
import { openBareFile } from "../reference/bare-file.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { records } from "./load.ts"

const chunk = joined(records)

/** Appends of 1,000 records, `outstanding` under way at any time. */
export function bareBatches(count: number, outstanding: number): Arm {
  return {
    name: `bare file, ${outstanding} outstanding`,
    async measure(directory, share) {
      const batches = Math.ceil((count * share) / records.length)
      const file = await openBareFile(join(directory, "bare"), chunk)
      try {
        const { ms } = await timed(() => keepOutstanding(batches, outstanding, () => file.append()))
        return { value: perSecond(batches * records.length, ms) }
      } finally {
        await file.close()
      }
    },
  }
}
