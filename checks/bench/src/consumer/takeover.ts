/** A member of a group is killed: how long until the other one reads all of its partitions. */
import { type Consumer, connect } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import { startChild } from "../child.ts"
import type { Row } from "../row.ts"
import { sibling } from "../sibling.ts"
import { type GroupBackend, onEachBackend } from "./backends.ts"
import { duration, durationRow, type Rounds } from "./durations.ts"
import { Producing } from "./producing.ts"

const partitions = 12
const sessionTimeoutMs = 6_000
const limitMs = sessionTimeoutMs + 1_000

export const takeover: Benchmark = {
  id: "takeover",
  async run({ scratch, quick }: BenchmarkContext): Promise<Row> {
    const rounds = await onEachBackend(scratch, (backend) => measure(backend, quick ? 1 : 3))
    return durationRow(rounds, {
      id: "takeover",
      unit: "ms until a killed member's partitions go on",
      method: `${partitions} partitions, two members in processes of their own, sessionTimeoutMs ${sessionTimeoutMs}; from SIGKILL of one until the other got a message of each of its partitions; a record a partition every 5 ms`,
    })
  },
}

async function measure({ name, url }: GroupBackend, rounds: number): Promise<Rounds> {
  const ms: number[] = []
  await using client = await connect(url, { stream: "bench" })
  for (let round = 0; round < rounds; round++) {
    const topic = client.topic(`takeover-${process.pid}-${round}`)
    await topic.ensure(partitions)
    await using producing = new Producing(topic, partitions)
    const survivor = await topic.consumerGroup("bench").consumer({ sessionTimeoutMs })
    const child = startChild(sibling(import.meta.url, "takeover.child"), [url, topic.name])
    const reading = new SeenPartitions(survivor)
    const lost = (await child.receive()) as number[]
    ms.push(
      await duration(async () => {
        process.kill(child.pid, "SIGKILL")
        await reading.all(lost)
      }),
    )
    // It was killed, which its end tells as a failure.
    await child.end().catch(() => {})
    await survivor.shutdown()
    await reading.ended
    await producing.stop()
    await topic.delete()
  }
  return { backend: name, ms, limitMs }
}

/** Reads a consumer to its end, and tells when certain partitions have come. */
class SeenPartitions {
  readonly ended: Promise<void>
  #wanted: Set<number> | undefined
  #resolve: (() => void) | undefined

  constructor(consumer: Consumer) {
    this.ended = this.#read(consumer)
    this.ended.catch(() => {})
  }

  async all(partitions: readonly number[]): Promise<void> {
    this.#wanted = new Set(partitions)
    const seen = new Promise<void>((resolve) => {
      this.#resolve = resolve
    })
    await Promise.race([seen, this.ended])
  }

  async #read(consumer: Consumer): Promise<void> {
    for await (const message of consumer) {
      if (this.#wanted?.delete(message.position.partition) && this.#wanted.size === 0) this.#resolve?.()
    }
  }
}
