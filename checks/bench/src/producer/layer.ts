/** The producer layer over a backend that does nothing, and what its benchmarks share. */
import { type Client, openClient } from "@millrace/core"
import { systemClock, systemRandom } from "@millrace/runtime"
import type { Producer, ProducerOptions } from "millrace"
import type { Arm } from "../pairs.ts"
import { quantile } from "../quantile.ts"
import { perSecond, timed } from "../stopwatch.ts"
import { IdleSession } from "./idle-session.ts"
import { payloadAt } from "./load.ts"

/** Over which keys spread. */
export const partitions = 8

/** One producer over an idle backend, for one measurement. */
interface Layer {
  readonly session: IdleSession
  readonly client: Client
  readonly producer: Producer
}

/** An arm that sends through the layer alone. It fails when not every record reached the backend. */
export function layerArm(
  name: string,
  count: number,
  how: { readonly options: ProducerOptions; readonly send: (producer: Producer, count: number) => Promise<void> },
): Arm {
  return {
    name,
    async measure(_directory, share) {
      const sends = Math.ceil(count * share)
      const { client, producer, session } = openLayer(how.options)
      try {
        await producer.init()
        const { ms, cpuMicros } = await timed(async () => {
          await how.send(producer, sends)
          await producer.flush()
        })
        if (session.appended !== sends)
          throw new Error(`${name}: ${session.appended} of ${sends} records were appended`)
        return { value: perSecond(sends, ms), cpuMicrosPerRecord: cpuMicros / sends }
      } finally {
        await client.close()
      }
    },
  }
}

function openLayer(options: ProducerOptions): Layer {
  const session = new IdleSession(partitions)
  const client = openClient(session, {}, { clock: systemClock, random: systemRandom })
  return { session, client, producer: client.stream("bench").topic("layer").producer(options) }
}

/** The p50 in ms of a direct send that is awaited, with nothing behind the layer. */
export function layerLatency(sends: number): Arm {
  return {
    name: "the layer alone, send awaited",
    async measure(_directory, share) {
      const { client, producer } = openLayer({})
      try {
        await producer.init()
        const times: number[] = []
        for (let index = 0; index < Math.ceil(sends * share); index++) {
          const start = systemClock.monotonicMs()
          await producer.send(payloadAt(index))
          times.push(systemClock.monotonicMs() - start)
        }
        return { value: quantile(times, 0.5) }
      } finally {
        await client.close()
      }
    },
  }
}
