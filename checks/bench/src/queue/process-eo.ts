/** Exactly-once consume-transform-produce, beside the same work at least once. */

import { join } from "node:path"
import type { Client, Message, Topic } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { fillLog } from "../embedded/filled-log.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { recordBytes, records } from "../producer/load.ts"
import { type Row, target } from "../row.ts"
import { perSecond, timed } from "../stopwatch.ts"

export const processEo: Benchmark = { id: "process-eo", run }

let runs = 0

/** One arm's work: reads the topic as a group of its own, and writes each record changed into another topic. */
interface Work {
  readonly client: Client
  readonly from: Topic
  readonly to: Topic
  readonly group: string
  readonly count: number
}

function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 10_000 : 500_000
  return scratch.within(async (directory) => {
    await using log = await fillLog(join(directory, "store"), { count })
    const { client, topic } = log
    const arms = [
      workArm("exactly once", { client, from: topic, count }, exactlyOnce),
      workArm("at least once", { client, from: topic, count }, atLeastOnce),
    ]
    const [ours, plain] = (await interleave(arms, quick ? 1 : 5, scratch)) as [Series, Series]
    return pairRow(ours, plain, {
      id: processEo.id,
      unit: "records/s",
      better: "higher",
      referenceName: "batches() of a group, sendBatch, commit, at least once",
      peers: {},
      targets: [target("records/s", ours.median, "at least", 100_000)],
      method: `${count} × ${recordBytes} B in batches of ${records.length} on 1 partition of an embedded log that syncs, each changed by a synchronous handler and written to another topic; process() with its defaults`,
    })
  })
}

function workArm(
  name: string,
  of: { readonly client: Client; readonly from: Topic; readonly count: number },
  work: (work: Work) => Promise<void>,
): Arm {
  return {
    name,
    async measure() {
      const number = runs++
      const to = of.client.stream("bench").topic(`out-${number}`)
      await to.ensure(1)
      const { ms, cpuMicros } = await timed(() => work({ ...of, to, group: `bench-${number}` }))
      const [partition] = await to.watermarks()
      if (partition?.end !== BigInt(of.count)) throw new Error(`${name}: ${partition?.end} of ${of.count} came out`)
      await to.delete()
      return { value: perSecond(of.count, ms), cpuMicrosPerRecord: cpuMicros / of.count }
    },
  }
}

async function exactlyOnce({ client, from, to, group, count }: Work): Promise<void> {
  let left = count
  const { promise, resolve } = Promise.withResolvers<void>()
  await using processor = client.process({
    from: { topic: from, group },
    to,
    handler(message: Message) {
      if (--left === 0) resolve()
      return changed(message)
    },
  })
  await Promise.race([promise, processor.done])
  await processor.shutdown()
}

async function atLeastOnce({ from, to, group, count }: Work): Promise<void> {
  await using producer = to.producer()
  await using consumer = await from.consumerGroup(group).consumer({ commitPolicy: { kind: "disabled" } })
  let left = count
  for await (const batch of consumer.batches()) {
    const out: Uint8Array[] = []
    for (const message of batch) out.push(changed(message))
    await producer.sendBatch(out)
    await consumer.commit()
    left -= batch.count
    if (left === 0) break
  }
}

function changed({ payload }: Message): Uint8Array {
  const bytes = new Uint8Array(payload ?? [])
  bytes[0] = (bytes[0] as number) ^ 1
  return bytes
}
