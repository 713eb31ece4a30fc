/** A third member joins a group of two: how long until it has its share and reads it. */
import { type Client, type Consumer, connect, type Message, type Topic } from "millrace"
import type { Benchmark, BenchmarkContext } from "../benchmark.ts"
import type { Row } from "../row.ts"
import { type GroupBackend, onEachBackend } from "./backends.ts"
import { duration, durationRow, type Rounds } from "./durations.ts"
import { Producing } from "./producing.ts"

const partitions = 12
const share = 4
const limitMs = 1_000

export const rebalance: Benchmark = {
  id: "rebalance",
  async run({ scratch, quick }: BenchmarkContext): Promise<Row> {
    const rounds = await onEachBackend(scratch, (backend) => measure(backend, quick ? 1 : 5))
    return durationRow(rounds, {
      id: "rebalance",
      unit: "ms until a third member reads its share",
      method: `${partitions} partitions with two members that read without a pause, each of its own connection; from the call that joins until the newcomer got a message of each of ${share} partitions; a record a partition every 5 ms; defaults, policy polling; the Kafka server deals partitions without its usual interval of 1 s, with heartbeats of 300 ms`,
    })
  },
}

async function measure({ name, url }: GroupBackend, rounds: number): Promise<Rounds> {
  const ms: number[] = []
  await using client = await connect(url, { stream: "bench" })
  for (let round = 0; round < rounds; round++) {
    const topic = client.topic(`rebalance-${process.pid}-${round}`)
    await topic.ensure(partitions)
    await using producing = new Producing(topic, partitions)
    const members = [await join(url, topic), await join(url, topic)]
    await Promise.all(members.map((member) => member.seen(partitions / 2)))
    ms.push(
      await duration(async () => {
        const third = await join(url, topic)
        members.push(third)
        await third.seen(share)
      }),
    )
    await Promise.all(members.map((member) => member.leave()))
    await producing.stop()
    await topic.delete()
  }
  return { backend: name, ms, limitMs }
}

interface Member {
  /** Settles when messages of so many partitions have come. */
  seen(count: number): Promise<void>
  leave(): Promise<void>
}

async function join(url: string, topic: Topic): Promise<Member> {
  const client = await connect(url, { stream: topic.stream })
  return new Reader(client, await client.topic(topic.name).consumerGroup("bench").consumer())
}

class Reader implements Member {
  readonly #client: Client
  readonly #consumer: Consumer
  readonly #reading: Promise<void>
  readonly #partitions = new Set<number>()
  #waiting: { readonly count: number; readonly resolve: () => void } | undefined

  constructor(client: Client, consumer: Consumer) {
    this.#client = client
    this.#consumer = consumer
    this.#reading = this.#read()
    this.#reading.catch(() => {})
  }

  async seen(count: number): Promise<void> {
    const seen = new Promise<void>((resolve) => {
      this.#waiting = { count, resolve }
      this.#look()
    })
    await Promise.race([seen, this.#reading])
  }

  async leave(): Promise<void> {
    await this.#consumer.shutdown()
    await this.#client.close()
    await this.#reading
  }

  async #read(): Promise<void> {
    for await (const message of this.#consumer as AsyncIterable<Message>) {
      this.#partitions.add(message.position.partition)
      this.#look()
    }
  }

  #look(): void {
    if (this.#waiting !== undefined && this.#partitions.size >= this.#waiting.count) this.#waiting.resolve()
  }
}
