/** Sends of one record that are awaited one by one, and what the producer layer has to do with how long they take. */
import { batchId, Headers } from "@millrace/contract"
import { embeddedDriver } from "@millrace/embedded"
import { systemClock, systemRandom } from "@millrace/runtime"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { bareWrite } from "../embedded/reference-arms.ts"
import { awaited, bareFile } from "../embedded/send-1.ts"
import { type Arm, interleave, pairRow, type Series } from "../pairs.ts"
import { quantile } from "../quantile.ts"
import { type Row, target } from "../row.ts"
import { layerLatency } from "./layer.ts"
import { payloadAt, recordBytes } from "./load.ts"

export const send1: Benchmark = { id: "send-1", run }

async function run({ scratch, quick }: BenchmarkContext): Promise<Row> {
  const sends = quick ? 50 : 1000
  const arms = [
    awaited(sends),
    bareWrite(payloadAt(0), sends),
    driverAlone(sends),
    bareFile(sends),
    layerLatency(sends * 10),
  ]
  const [ours, bare, driver, thread, layer] = (await interleave(arms, quick ? 1 : 5, scratch)) as [
    Series,
    Series,
    Series,
    Series,
    Series,
  ]
  return pairRow(ours, bare, {
    id: send1.id,
    unit: "ms, p50",
    better: "lower",
    referenceName: "write + fdatasync in the calling thread",
    peers: {
      ...ours.figures,
      "ms, p50 of the embedded driver alone": driver.median,
      "ms, p50 of a bare file in a worker thread": thread.median,
      "ms, p50 of the producer layer alone": layer.median,
    },
    targets: [target("× write + fdatasync, p50", ours.median / bare.median, "at most", 1.3)],
    method: `send of ${recordBytes} B on 1 partition of the embedded log, ${sends} awaited a round; the driver alone is one sealed batch a call, without the core`,
  })
}

/** One sealed batch of one record a call, straight into the driver, with an identity and sequences as the core gives them. */
function driverAlone(sends: number): Arm {
  return {
    name: "embedded driver alone",
    async measure(directory, share) {
      const target = { scheme: "file", hosts: [], path: directory, options: {} }
      const session = await embeddedDriver.connect(target, { timeoutMs: 10_000 })
      try {
        const { log, catalog } = session
        await catalog.createStream("bench")
        const topic = await catalog.createTopic(
          { stream: "bench", topic: "records" },
          {
            partitions: 1,
            durability: "synced",
            offsetDurability: "synced",
            deduplicationWindowMs: 120_000,
            deduplicateIds: false,
          },
        )
        const identity = await log.identify(topic)
        const limits = { records: 1000, bytes: 1 << 20 }
        const times: number[] = []
        for (let sequence = 0; sequence < Math.ceil(sends * share); sequence++) {
          const start = systemClock.monotonicMs()
          const writer = log.writer(topic, 0, limits)
          writer.tryAppend({ ...record, payload: payloadAt(0) })
          const timestampMicros = systemClock.nowMicros()
          const id = batchId(Number(timestampMicros / 1000n), 0, BigInt(systemRandom.uint32()))
          const batch = writer.seal({ id, timestampMicros, resend: false })
          await log.append(batch, { identity: { ...identity, sequence } })
          batch.release()
          times.push(systemClock.monotonicMs() - start)
        }
        return { value: quantile(times, 0.5) }
      } finally {
        await session.close()
      }
    },
  }
}

const record = { key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined }
