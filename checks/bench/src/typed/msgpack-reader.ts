/** A typed reader of MessagePack, beside the bare library over the same bytes. */
import { join } from "node:path"
import { Msgpack } from "millrace"
import { Unpackr } from "msgpackr"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { interleave, pairRow, type Series } from "../pairs.ts"
import type { Row } from "../row.ts"
import { meanBytes } from "./json-reader.ts"
import { decodeAll, decodingArm, pollAll } from "./reading-arms.ts"
import { fillTyped } from "./typed-log.ts"
import { decodeFlight, encoded, flights } from "./values.ts"

export const msgpackReader: Benchmark = { id: "msgpack-reader", run }

function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 10_000 : 1_000_000
  const codec = new Msgpack(decodeFlight)
  const payloads = encoded((flight) => codec.encode(flight))
  const sum = flights.reduce((total, { delay }) => total + delay, 0) * (count / flights.length)
  return scratch.within(async (directory) => {
    await using log = await fillTyped(join(directory, "store"), payloads, count)
    const unpackr = new Unpackr({ useRecords: false })
    const arms = [
      decodingArm("typed reader", { count, sum }, async () => {
        await using reader = await log.topic.msgpack(codec).records("bench", 10_000)
        return await pollAll(reader)
      }),
      decodingArm("msgpackr", { count, sum }, async () =>
        decodeAll(payloads, count, (payload) => unpackr.unpack(payload)),
      ),
    ]
    const [ours, bare] = (await interleave(arms, quick ? 1 : 5, scratch)) as [Series, Series]
    return pairRow(ours, bare, {
      id: msgpackReader.id,
      unit: "records/s",
      better: "higher",
      referenceName: "msgpackr over the same bytes in memory",
      peers: {},
      targets: [],
      method: `${count} × ${meanBytes(payloads)} B of MessagePack in batches of ${payloads.length} on 1 partition of an embedded log; records("bench", 10000), poll by poll, each value checked by the codec's function`,
    })
  })
}
