/** Background sends with a key each, through the producer layer alone. */
import { murmur2 } from "@millrace/contract"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { type Row, target } from "../row.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { layerArm, partitions } from "./layer.ts"
import { acceptInGroups, payloadAt, recordBytes, records, sendOneByOne } from "./load.ts"

const keys = Array.from({ length: records.length }, (_, index) => new TextEncoder().encode(`customer-${index}`))
const sends = keys.map((key) => ({ key }))
const keyed = keys.map((key, index) => ({ payload: payloadAt(index), key }))

export const layerKeys: Benchmark = { id: "layer-keys", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 20_000 : 3_000_000
  const arms = [inGroups(count), plainLoop(count), oneByOne(count), inBatches(count), direct(count)]
  const [ours, loop, single, batched, confirmed] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
    Series,
    Series,
    Series,
    Series,
    Series,
  ]
  return pairRow(ours, loop, {
    id: layerKeys.id,
    unit: "records/s",
    better: "higher",
    referenceName: "a plain loop of hash and writer",
    peers: {
      "records/s, each acceptance awaited": single.median,
      "records/s in sendBatch of 1,000": batched.median,
      "records/s of a direct producer in sendBatch of 1,000": confirmed.median,
      "CPU µs/record in sendBatch of 1,000": batched.cpuMicrosPerRecord ?? 0,
    },
    targets: [target("records/s", ours.median, "at least", 3_000_000)],
    method: `background, ${count} × ${recordBytes} B, keys of 10 to 12 B on ${partitions} partitions; single sends of which every 10,000th is awaited, over a backend that does nothing`,
  })
}

function inGroups(count: number): Arm {
  return layerArm("send in groups", count, {
    options: { background: true },
    send: (producer, total) => acceptInGroups(total, (index) => producer.send(payloadAt(index), sends[index % 1000])),
  })
}

function oneByOne(count: number): Arm {
  return layerArm("send, awaited", count, {
    options: { background: true },
    send: (producer, total) => sendOneByOne(total, (index) => producer.send(payloadAt(index), sends[index % 1000])),
  })
}

function inBatches(count: number): Arm {
  return layerArm("sendBatch", count, {
    options: { background: true },
    send: async (producer, total) => {
      for (let left = total; left > 0; left -= keyed.length) await producer.sendBatch(keyed.slice(0, left))
    },
  })
}

function direct(count: number): Arm {
  return layerArm("sendBatch of a direct producer", count, {
    options: {},
    send: async (producer, total) => {
      for (let left = total; left > 0; left -= keyed.length) await producer.sendBatch(keyed.slice(0, left))
    },
  })
}

/** What no producer can do without: the hash of each key, and the record counted on its partition. */
function plainLoop(count: number): Arm {
  return {
    name: "plain loop",
    async measure(_directory, share) {
      const total = Math.ceil(count * share)
      const counts = new Float64Array(partitions)
      const bytes = new Float64Array(partitions)
      const { ms } = await timed(() => {
        for (let index = 0; index < total; index++) {
          const { payload, key } = keyed[index % 1000] as (typeof keyed)[number]
          const partition = murmur2(key) % partitions
          counts[partition] = (counts[partition] as number) + 1
          bytes[partition] = (bytes[partition] as number) + payload.length + key.length
        }
      })
      return { value: perSecond(total, ms) }
    },
  }
}
