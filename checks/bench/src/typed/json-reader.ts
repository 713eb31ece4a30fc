/** A typed reader of JSON, beside nothing but JSON.parse over the same bytes. */
import { join } from "node:path"
import { Json } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { interleave, pairRow, type Series } from "../pairs.ts"
import { type Row, target } from "../row.ts"
import { decodeAll, decodingArm, pollAll } from "./reading-arms.ts"
import { fillTyped } from "./typed-log.ts"
import { decodeFlight, encoded, type Flight, flights } from "./values.ts"

export const jsonReader: Benchmark = { id: "json-reader", run }

function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 10_000 : 1_000_000
  const codec = new Json(decodeFlight)
  const payloads = encoded((flight) => codec.encode(flight)).map((payload) => Buffer.from(payload))
  const sum = flights.reduce((total, { delay }) => total + delay, 0) * (count / flights.length)
  return scratch.within(async (directory) => {
    await using log = await fillTyped(join(directory, "store"), payloads, count)
    const typed = log.topic.json(codec)
    const parse = (payload: Uint8Array): unknown => JSON.parse((payload as Buffer).toString())
    let names = 0
    const arms = [
      decodingArm("typed reader", { count, sum }, async () => {
        await using reader = await typed.records("bench", 10_000)
        return await pollAll(reader)
      }),
      decodingArm("JSON.parse", { count, sum }, async () => decodeAll(payloads, count, parse)),
      decodingArm("typed consumer", { count, sum }, async () => {
        await using consumer = typed.consumer(`bench-${names++}`, 0, { startAt: { kind: "first" } })
        let [left, total] = [count, 0]
        for await (const message of consumer) {
          total += (message.value as Flight).delay
          if (--left === 0) break
        }
        return { count, sum: total }
      }),
      decodingArm("raw cursor", { count, sum }, async () => {
        await using cursor = await log.topic.replay({ batch: 10_000 })
        for (let seen = 0; ; ) {
          const results = await cursor.poll()
          seen += results.length
          // Nothing is decoded here: the sum is taken for granted.
          if (results.length === 0) return { count: seen, sum }
        }
      }),
    ]
    const [ours, bare, consumed, raw] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
      Series,
      Series,
      Series,
      Series,
    ]
    return pairRow(ours, bare, {
      id: jsonReader.id,
      unit: "records/s",
      better: "higher",
      referenceName: "JSON.parse over the same bytes in memory",
      peers: {
        "records/s of a typed consumer, for await": consumed.median,
        "records/s of the raw cursor, nothing decoded": raw.median,
      },
      targets: [target("× JSON.parse", ours.median / bare.median, "at least", 0.7)],
      method: `${count} × ${meanBytes(payloads)} B of JSON in batches of ${payloads.length} on 1 partition of an embedded log; records("bench", 10000), poll by poll, each value checked by the codec's function`,
    })
  })
}

/** The mean size of a payload. */
export function meanBytes(payloads: readonly Uint8Array[]): number {
  return Math.round(payloads.reduce((total, { length }) => total + length, 0) / payloads.length)
}
