/** Chapter: members that come and go for a while, over more partitions than members, with handlers that are slow now and then. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Client, Consumer, Message, Topic } from "millrace"
import { type ClientRig, encode } from "../rig/client-rig.ts"
import { until } from "../rig/deadline.ts"
import { text } from "../rig/records.ts"

export function groupSoakChapter(rig: ClientRig): void {
  describe("the soak", () => {
    test("A-05: three members over 12 partitions, slow handlers, members that come and go: nobody falls silent, nothing is lost", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const topic = await rig.topic(12)
      const soak = new Soak(rig, topic)
      await soak.run(process.env.MILLRACE_LONG === "1" ? 60_000 : 3_000)
      assert.deepEqual(soak.problems, [])
    })
  })
}

/** Members that come and go, with handlers that sleep for up to three times the wait of a poll, while numbered records are sent. */
class Soak {
  readonly problems: string[] = []
  readonly #rig: ClientRig
  readonly #topic: Topic
  readonly #partitions = 12
  readonly #members: { readonly client: Client; readonly consumer: Consumer; readonly ended: Promise<void> }[] = []
  /** The highest number handled of each partition, and how many were sent. */
  readonly #last = new Map<number, number>()
  readonly #sent = new Map<number, number>()
  /** Since when a partition has had something that nobody handles. */
  readonly #since = new Map<number, number>()
  #turn = 0

  /** No partition with something to read may stay silent for so long. */
  static readonly silenceMs = 5_000

  constructor(rig: ClientRig, topic: Topic) {
    this.#rig = rig
    this.#topic = topic
  }

  async run(lengthMs: number): Promise<void> {
    const stop = performance.now() + lengthMs
    for (let index = 0; index < 3; index++) await this.#join()
    const producing = this.#produce(stop)
    const pauseMs = Math.min(2_000, lengthMs / 6)
    for (let step = 0; performance.now() < stop; step++) {
      await new Promise((resolve) => setTimeout(resolve, pauseMs))
      if (step % 2 === 0) await this.#leave()
      else await this.#join()
    }
    await producing
    await until("everything to be handled", () => (this.#behind().length === 0 ? true : undefined), 60_000)
    while (this.#members.length > 0) await this.#leave()
  }

  async #produce(stop: number): Promise<void> {
    const producer = this.#topic.producer()
    for (let counter = 0; performance.now() < stop; counter++) {
      await Promise.all(
        Array.from({ length: this.#partitions }, async (_, partition) => {
          await producer.send(encode(`${partition}:${counter}`), { partition })
          this.#sent.set(partition, counter + 1)
        }),
      )
      await new Promise((resolve) => setTimeout(resolve, 50))
      this.#listen()
    }
    await producer.shutdown()
  }

  async #join(): Promise<void> {
    const client = await this.#rig.connect()
    const topic = client.stream(this.#topic.stream).topic(this.#topic.name)
    const consumer = await topic
      .consumerGroup("soak")
      .consumer({ commitPolicy: { kind: "each" }, maxWaitMs: 50, batchLength: 20 })
    consumer.on({ stalled: (stall) => void this.problems.push(`stalled: ${stall.partition} for ${stall.forMs} ms`) })
    const ended = consumer
      .run((message) => this.#handle(message), { concurrency: 12, order: "partition" })
      .catch((error: unknown) => void this.problems.push(`a member failed: ${String(error)}`))
    this.#members.push({ client, consumer, ended })
  }

  async #leave(): Promise<void> {
    const member = this.#members.shift()
    await member?.consumer.shutdown()
    await member?.ended
    await member?.client.close()
  }

  async #handle(message: Message): Promise<void> {
    // 0 to 150 ms, in a fixed but mixed order; most are short, so that a handler keeps up with what is sent.
    const turn = this.#turn++ % 16
    if (turn % 4 === 3) await new Promise((resolve) => setTimeout(resolve, turn * 10))
    const [partition = Number.NaN, counter = Number.NaN] = text(message.payload).split(":").map(Number)
    const last = this.#last.get(partition) ?? -1
    if (counter > last + 1) this.problems.push(`${partition}:${counter} came behind ${last}`)
    this.#last.set(partition, Math.max(last, counter))
    this.#since.set(partition, performance.now())
  }

  #behind(): number[] {
    return [...this.#sent]
      .filter(([partition, sent]) => (this.#last.get(partition) ?? -1) < sent - 1)
      .map(([one]) => one)
  }

  #listen(): void {
    const now = performance.now()
    const behind = new Set(this.#behind())
    for (let partition = 0; partition < this.#partitions; partition++) {
      const since = this.#since.get(partition)
      if (!behind.has(partition) || since === undefined) this.#since.set(partition, now)
      else if (now - since > Soak.silenceMs) {
        this.problems.push(`partition ${partition} was silent for ${Math.round(now - since)} ms`)
        this.#since.set(partition, now)
      }
    }
  }
}
