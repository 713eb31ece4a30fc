/** A named consumer that commits by itself, over an embedded log. */
import { join } from "node:path"
import type { Topic } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { fillLog } from "../embedded/filled-log.ts"
import { interleave, pairRow, type Series } from "../pairs.ts"
import { recordBytes, records } from "../producer/load.ts"
import { fileScanArm } from "../reference/file-scan.ts"
import { type Row, target } from "../row.ts"
import { batchAndCommit, commitEvery, forAwait, nextAndCommit, nextAndCommitBehind, readingArm } from "./reading.ts"

const disabled = { commitPolicy: { kind: "disabled" } } as const

export const consume100b: Benchmark = { id: "consume-100b", run }

function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 20_000 : 2_000_000
  return scratch.within(async (directory) => {
    const file = join(directory, "file")
    await using log = await fillLog(join(directory, "store"), { count, file })
    const topic = (): Topic => log.topic
    const each = { count, topic, options: { commitPolicy: { kind: "intervalOrEach", intervalMs: 1000 } } } as const
    const arms = [
      readingArm("next", { count, topic, options: disabled }, nextAndCommit),
      fileScanArm(file, { count, recordBytes }),
      readingArm("for await", { count, topic }, forAwait),
      readingArm("batches", { count, topic, options: disabled }, batchAndCommit),
      readingArm("next, commits not awaited", { count, topic, options: disabled }, nextAndCommitBehind),
      readingArm("each", { ...each, count: Math.ceil(count / 200) }, forAwait),
    ]
    const [ours, bare, iterated, batches, behind, stored] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
      Series,
      Series,
      Series,
      Series,
      Series,
      Series,
    ]
    return pairRow(ours, bare, {
      id: consume100b.id,
      unit: "messages/s",
      better: "higher",
      referenceName: "the same bytes from a file",
      peers: {
        "messages/s of for await, policy polling": iterated.median,
        "messages/s of batches(), a commit a batch": batches.median,
        "messages/s when the commits are not awaited one by one": behind.median,
        "messages/s of for await, policy intervalOrEach": stored.median,
      },
      targets: [target("messages/s", ours.median, "at least", 1_000_000)],
      method: `${count} × ${recordBytes} B in batches of ${records.length} on 1 partition of an embedded log that syncs; next() and a commit every ${commitEvery}, each awaited`,
    })
  })
}
