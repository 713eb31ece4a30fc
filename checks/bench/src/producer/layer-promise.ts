/** Background sends with a confirmation each, through the producer layer alone. */
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { type Row, target } from "../row.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { layerArm, partitions } from "./layer.ts"
import { acceptInGroups, confirmInGroups, groupRecords, payloadAt, recordBytes } from "./load.ts"

export const layerPromise: Benchmark = { id: "layer-promise", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const count = quick ? 20_000 : 2_000_000
  const arms = [confirmed(count), plainPromises(count), unwatched(count), accepted(count), direct(count)]
  const [ours, plain, made, taken, single] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
    Series,
    Series,
    Series,
    Series,
    Series,
  ]
  return pairRow(ours, plain, {
    id: layerPromise.id,
    unit: "records/s",
    better: "higher",
    referenceName: "a promise a record and nothing else",
    peers: {
      "records/s, of which the caller awaits every 10,000th": made.median,
      "CPU µs/record, of which the caller awaits every 10,000th": made.cpuMicrosPerRecord ?? 0,
      "records/s accepted and confirmed without a promise each": taken.median,
      "records/s of a direct producer's send": single.median,
    },
    targets: [
      target("records/s, awaited by Promise.all", ours.median, "at least", 2_000_000),
      target("records/s of the layer without that", made.median, "at least", 2_000_000),
    ],
    method: `sendAndConfirm, ${count} × ${recordBytes} B on ${partitions} partitions in groups of ${groupRecords} that Promise.all awaits, over a backend that does nothing`,
  })
}

function confirmed(count: number): Arm {
  return layerArm("sendAndConfirm", count, {
    options: { background: true },
    send: (producer, total) => confirmInGroups(total, (index) => producer.sendAndConfirm(payloadAt(index))),
  })
}

/** The promises are made and settled, and only the last of a group is looked at. */
function unwatched(count: number): Arm {
  return layerArm("sendAndConfirm, the last awaited", count, {
    options: { background: true },
    send: (producer, total) => acceptInGroups(total, (index) => producer.sendAndConfirm(payloadAt(index))),
  })
}

function accepted(count: number): Arm {
  return layerArm("send in the background", count, {
    options: { background: true },
    send: (producer, total) => acceptInGroups(total, (index) => producer.send(payloadAt(index))),
  })
}

function direct(count: number): Arm {
  return layerArm("send", count, {
    options: {},
    send: (producer, total) => confirmInGroups(total, (index) => producer.send(payloadAt(index))),
  })
}

/** What a promise a record costs with nothing behind it: made, resolved with an object of its own, awaited in groups. */
function plainPromises(count: number): Arm {
  return {
    name: "plain promises",
    async measure(_directory, share) {
      const total = Math.ceil(count * share)
      const { ms } = await timed(async () => {
        let waiting: (() => void)[] = []
        const settle = (): void => {
          const group = waiting
          waiting = []
          for (const resolve of group) resolve()
        }
        await confirmInGroups(total, (index) => {
          if (waiting.length === 0) queueMicrotask(settle)
          const payload = payloadAt(index)
          return new Promise((resolve) => {
            waiting.push(() => resolve({ partition: 0, offset: BigInt(index), payloadBytes: payload.length }))
          })
        })
      })
      return { value: perSecond(total, ms) }
    },
  }
}
