/** A process that does nothing but open a store, look or write once, and close it. Its engine runs in its own main thread. */
import assert from "node:assert/strict"
import { serve, tell } from "./serve.ts"
import { openThreadSession } from "./thread-session.ts"
import { appendTrialBatch, ensureTopic, trialTopic } from "./trial-log.ts"

/** What a storm is made of. */
export interface StormSettings {
  readonly directory: string
  readonly writer: number
  readonly opens: number
  /** Each so many opens append a record; the others look whether the end has gone back. */
  readonly appendEvery: number
}

serve({
  async storm({ directory, writer, opens, appendEvery }: StormSettings) {
    let end = 0n
    for (let open = 0, first = 0; open < opens; open += 1) {
      const session = openThreadSession(directory)
      const topic = await ensureTopic(session)
      const [marks] = await session.log.watermarks([{ ...trialTopic, partition: 0 }])
      assert.ok(marks !== undefined && "end" in marks && marks.end >= end, `the log's end went back from ${end}`)
      end = marks.end
      if (open % appendEvery === 0) {
        const base = await appendTrialBatch(session, topic, { writer, first, count: 1, bytes: 60 })
        tell({ writer, base, first, count: 1 })
        first += 1
        end = base + 1n
      }
      await session.close()
    }
  },
})
