/** What is measured of a contender: batches, single sends, reading. */
import { systemClock } from "@millrace/runtime"
import type { Arm } from "../pairs.ts"
import { payloads } from "../payload.ts"
import { quantile } from "../quantile.ts"
import { perSecond, timed } from "../stopwatch.ts"
import type { Contender, Contestant } from "./contender.ts"

export const batchRecords = 1000
export const recordBytes = 100

const records = payloads(batchRecords, recordBytes)
let topics = 0

/** Every measurement gets a topic of its own: what lies in another weighs on nobody. */
export function freshTopic(): string {
  topics++
  return `bench-${process.pid}-${topics}`
}

/** Sends of `batchRecords` records each, and how long until all are confirmed. */
export function produceArm(contender: Contender, url: string, batches: number): Arm {
  return {
    name: contender.name,
    measure: (_, share) =>
      within(contender, url, async (contestant) => {
        const count = Math.ceil(batches * share)
        const { ms, cpuMicros } = await timed(() => part(contender, contestant.produce)(records, count))
        const sent = count * batchRecords
        return { value: perSecond(sent, ms), cpuMicrosPerRecord: cpuMicros / sent }
      }),
  }
}

/** Sends of one record, each awaited. */
export function sendArm(contender: Contender, url: string, sends: number): Arm {
  return {
    name: contender.name,
    measure: (_, share) =>
      within(contender, url, async (contestant) => {
        const send = part(contender, contestant.send)
        const count = Math.ceil(sends * share)
        await send(records[0] as Uint8Array)
        const times: number[] = []
        const { ms, cpuMicros } = await timed(async () => {
          for (let index = 0; index < count; index++) {
            const start = systemClock.monotonicMs()
            await send(records[index % batchRecords] as Uint8Array)
            times.push(systemClock.monotonicMs() - start)
          }
        })
        return {
          value: perSecond(count, ms),
          cpuMicrosPerRecord: cpuMicros / count,
          figures: { "ms, p50": quantile(times, 0.5), "ms, p99": quantile(times, 0.99) },
        }
      }),
  }
}

/** Reads what `filler` wrote before, from the first record to the last. */
export function consumeArm(contender: Contender, url: string, batches: number): Arm {
  return {
    name: contender.name,
    measure: (_, share) =>
      within(contender, url, async (contestant) => {
        const count = Math.ceil(batches * share) * batchRecords
        await part(contender, contestant.produce)(records, count / batchRecords)
        let bytes = 0
        const { ms, cpuMicros } = await timed(async () => {
          bytes = await part(contender, contestant.consume)(count)
        })
        if (bytes !== count * recordBytes) {
          throw new Error(`${contender.name}: ${bytes} bytes were read of ${count * recordBytes}`)
        }
        return { value: perSecond(count, ms), cpuMicrosPerRecord: cpuMicros / count }
      }),
  }
}

async function within<V>(contender: Contender, url: string, work: (contestant: Contestant) => Promise<V>): Promise<V> {
  const contestant = await contender.open(url, freshTopic())
  try {
    return await work(contestant)
  } finally {
    await contestant.close()
  }
}

function part<P>(contender: Contender, part: P | undefined): P {
  if (part === undefined) throw new Error(`${contender.name} is not measured in this`)
  return part
}
