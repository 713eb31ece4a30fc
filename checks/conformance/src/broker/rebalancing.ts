/** Chapter: members of a group come, go and die over many partitions. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type Client, type Consumer, connect, type Topic } from "millrace"
import { encode, take } from "../rig/client-rig.ts"
import { until } from "../rig/deadline.ts"
import { text } from "../rig/records.ts"
import { type BrokerRig, collect } from "./broker-rig.ts"

const partitions = 16

/** No partition with something to read may stay silent for so long. */
const silenceMs = 5_000

export function rebalancingChapter(rig: BrokerRig): void {
  describe("rebalancing", () => {
    test("A-05: three members over 16 partitions, joining and leaving, lose nothing and never fall silent", async () => {
      const lengthMs = process.env.MILLRACE_LONG === "1" ? 60_000 : 8_000
      const client = await rig.connect()
      const topic = await rig.topic(client, partitions)
      const soak = new Soak(rig, topic)
      const stop = performance.now() + lengthMs
      const producing = soak.produce(stop)
      for (let index = 0; index < 3; index++) await soak.join()
      for (let step = 0; performance.now() < stop; step++) {
        await new Promise((resolve) => setTimeout(resolve, 2_000))
        if (step % 2 === 0) await soak.leave()
        else await soak.join()
      }
      const sent = await producing
      await until("everything to be handled", () => (soak.handled.size === sent ? true : undefined), 30_000)
      await soak.end()
      assert.deepEqual(soak.problems, [])
      await client.close()
    })

    test("A-06: a member that gains a partition reads nothing of it that was committed already", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client, partitions)
      const producer = topic.producer()
      for (let partition = 0; partition < partitions; partition++) {
        await producer.sendBatch(["a", "b", "c"].map(encode), { partition })
      }
      const settings = { commitPolicy: { kind: "each" }, sessionTimeoutMs: rig.under.sessionTimeoutMs } as const
      const group = topic.consumerGroup("takers")
      const first = await group.consumer(settings)
      const all = collect(first)
      await all.reaches(3 * partitions)
      await first.shutdown()
      rig.proxy.delay(150, "toClient")
      try {
        const second = await group.consumer(settings)
        for (let partition = 0; partition < partitions; partition++) await producer.send(encode("d"), { partition })
        const gained = await take(second, partitions)
        assert.deepEqual([...new Set(gained.map((message) => text(message.payload)))], ["d"])
        await second.shutdown()
      } finally {
        rig.proxy.delay(0, "toClient")
      }
      await client.close()
    })

    test("A-27: a handler that takes longer than the session time-out keeps its partitions, and handles its message once", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client, 2)
      const sessionTimeoutMs = rig.under.sessionTimeoutMs
      const settings = { commitPolicy: { kind: "each" }, sessionTimeoutMs } as const
      const slow = await topic.consumerGroup("slow").consumer(settings)
      const changes: string[] = []
      slow.on({ lost: () => void changes.push("lost"), revoked: () => void changes.push("revoked") })
      await topic.producer().sendBatch(["a", "b"].map(encode), { partition: 0 })
      const [message] = await take(slow, 1)
      await new Promise((resolve) => setTimeout(resolve, sessionTimeoutMs * 1.5))
      assert.deepEqual(changes, [])
      await slow.commit(message)
      const [next] = await take(slow, 1)
      assert.equal(text(next?.payload), "b")
      await slow.shutdown()
      await client.close()
    })

    test("a member whose connection is gone for longer than its session time-out loses its partitions to the others", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client, 4)
      const settings = { commitPolicy: { kind: "each" }, sessionTimeoutMs: rig.under.sessionTimeoutMs } as const
      const cutOff = await topic.consumerGroup("pair").consumer(settings)
      const lost = collect(cutOff)
      const near = await connect(rig.server.directUrl)
      try {
        const stays = await near.stream(topic.stream).topic(topic.name).consumerGroup("pair").consumer(settings)
        const kept = collect(stays)
        const producer = near.stream(topic.stream).topic(topic.name).producer()
        rig.proxy.stall()
        for (let partition = 0; partition < 4; partition++) await producer.send(encode(`p${partition}`), { partition })
        await until(
          "the member that stays to read every partition",
          () => (new Set(kept.seen.map((message) => text(message.payload))).size === 4 ? true : undefined),
          rig.under.sessionTimeoutMs * 3 + 10_000,
        )
        rig.proxy.flow()
        rig.proxy.cut()
        await Promise.all([cutOff.shutdown().catch(() => {}), stays.shutdown()])
        await lost.ended
      } finally {
        rig.proxy.flow()
        await near.close()
      }
      await client.close().catch(() => {})
    })
  })
}

/** Members that come and go while numbered records are sent to every partition. */
class Soak {
  readonly handled: Set<string> = new Set()
  readonly problems: string[] = []
  readonly #rig: BrokerRig
  readonly #topic: Topic
  readonly #members: { readonly client: Client; readonly consumer: Consumer; readonly ended: Promise<void> }[] = []
  /** The highest number handled of each partition; what comes again must not jump ahead. */
  readonly #last = new Map<number, number>()
  /** When something of a partition was last handled, and how many of it were sent. */
  readonly #since = new Map<number, number>()
  readonly #sent = new Map<number, number>()

  constructor(rig: BrokerRig, topic: Topic) {
    this.#rig = rig
    this.#topic = topic
  }

  /** Sends to every partition in turn until a time of the performance clock; answers how many records. */
  async produce(stop: number): Promise<number> {
    const producer = this.#topic.producer()
    let sent = 0
    for (let counter = 0; performance.now() < stop; counter++) {
      await Promise.all(
        Array.from({ length: partitions }, async (_, partition) => {
          await producer.send(encode(`${partition}:${counter}`), { partition })
          sent++
          this.#sent.set(partition, counter + 1)
          if (!this.#since.has(partition)) this.#since.set(partition, performance.now())
        }),
      )
      await new Promise((resolve) => setTimeout(resolve, 40))
      this.#listen()
    }
    await producer.shutdown()
    return sent
  }

  async join(): Promise<void> {
    const client = await this.#rig.connect()
    const topic = client.stream(this.#topic.stream).topic(this.#topic.name)
    const consumer = await topic.consumerGroup("soak").consumer({ commitPolicy: { kind: "each" } })
    const ended = (async () => {
      for await (const message of consumer) {
        this.#handle(text(message.payload))
        if (message.position.offset % 16n === 7n) await new Promise((resolve) => setTimeout(resolve, 20))
      }
    })().catch((error: unknown) => void this.problems.push(`a member failed: ${String(error)}`))
    this.#members.push({ client, consumer, ended })
  }

  async leave(): Promise<void> {
    const member = this.#members.shift()
    await member?.consumer.shutdown()
    await member?.ended
    await member?.client.close()
  }

  async end(): Promise<void> {
    while (this.#members.length > 0) await this.leave()
  }

  #handle(payload: string): void {
    const [partition = Number.NaN, counter = Number.NaN] = payload.split(":").map(Number)
    const last = this.#last.get(partition) ?? -1
    if (counter > last + 1) this.problems.push(`${payload} came behind ${partition}:${last}`)
    this.#last.set(partition, Math.max(last, counter))
    this.#since.set(partition, performance.now())
    this.handled.add(payload)
  }

  #listen(): void {
    const now = performance.now()
    for (const [partition, since] of this.#since) {
      const behind = (this.#sent.get(partition) ?? 0) - 1 > (this.#last.get(partition) ?? -1)
      if (behind && now - since > silenceMs) {
        this.problems.push(`partition ${partition} was silent for ${Math.round(now - since)} ms`)
        this.#since.set(partition, now)
      }
    }
  }
}
