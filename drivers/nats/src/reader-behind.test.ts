/** A reader whose consumer lies on a server that is behind the leader of the stream. */
import assert from "node:assert/strict"
import { subscribe, unsubscribe } from "node:diagnostics_channel"
import { describe, type TestContext, test } from "node:test"
import type { LogReader, PartitionRead } from "@millrace/contract"
import { systemRandom, VirtualClock } from "@millrace/runtime"
import { Connection } from "./connection.ts"
import type { ReaderReplaced } from "./diagnostics.ts"
import { ScriptedJetStream, scriptedLineage, scriptedStream } from "./scripted-jetstream.test-support.ts"
import { NatsSession } from "./session.ts"

const beatMs = 5_000

/** A reader of the scripted stream on a virtual clock. */
class Trial {
  readonly jetstream: ScriptedJetStream
  readonly clock: VirtualClock
  readonly session: NatsSession
  readonly reader: LogReader
  readonly replaced: ReaderReplaced[] = []
  readonly seen: string[] = []
  nextOffset: bigint | undefined
  head: bigint | undefined

  private constructor(jetstream: ScriptedJetStream, clock: VirtualClock, session: NatsSession) {
    this.jetstream = jetstream
    this.clock = clock
    this.session = session
    this.reader = session.log.openReader({ isolation: "committed" })
  }

  static async open(t: TestContext, jetstream: ScriptedJetStream, offset = 0n): Promise<Trial> {
    const clock = new VirtualClock()
    const hosts = [{ host: "127.0.0.1", port: jetstream.port }]
    const target = { scheme: "nats", hosts, path: "", options: {} }
    const session = new NatsSession(
      await Connection.open(target, { timeoutMs: 10_000 }, { clock, random: systemRandom }),
    )
    const trial = new Trial(jetstream, clock, session)
    const note = (message: unknown): void => void trial.replaced.push(message as ReaderReplaced)
    subscribe("millrace:nats.reader.replaced", note)
    t.after(async () => {
      unsubscribe("millrace:nats.reader.replaced", note)
      await trial.reader.close()
      await session.close()
      assert.equal(clock.timers, 0)
    })
    trial.reader.set([{ stream: "", topic: scriptedStream, partition: 0, offset, lineage: scriptedLineage }])
    return trial
  }

  /** One poll. Heartbeats come in time, and their time passes while it waits. */
  async poll(maxWaitMs: number): Promise<void> {
    const poll = this.reader.next({ maxRecords: 100, maxBytes: 100_000, minRecords: 1, maxWaitMs })
    let reads: PartitionRead[] | undefined
    void poll.then((answer) => {
      reads = answer
    })
    for (let step = 0; reads === undefined; step++) {
      if (step % 10 === 9) this.jetstream.beat()
      await this.settle()
      await this.clock.advance(beatMs / 10)
    }
    for (const read of reads) {
      if (read.error !== undefined) throw read.error
      this.nextOffset = read.nextOffset
      this.head = read.head
      for (const batch of read.batches) {
        for (let index = 0; index < batch.count; index++)
          this.seen.push(Buffer.from(batch.payload(index) ?? []).toString())
      }
    }
  }

  /** Polls until so many records were seen; not for longer than the wait. */
  async until(records: number, withinMs: number): Promise<void> {
    const endMs = this.clock.monotonicMs() + withinMs
    while (this.seen.length < records) {
      const leftMs = endMs - this.clock.monotonicMs()
      assert.ok(leftMs > 0, `${this.seen.length} of ${records} records came within ${withinMs} ms`)
      await this.poll(leftMs)
    }
  }

  async reached(what: string, done: () => boolean): Promise<void> {
    for (let turn = 0; !done(); turn++) {
      assert.ok(turn < 500, `${what} did not come`)
      await this.settle()
    }
  }

  /** What is on its way between the two ends of the connection arrives. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setTimeout(resolve, 1))
  }

  asked(request: string): number {
    return this.jetstream.requests.filter((one) => one.startsWith(request)).length
  }
}

describe("a reader of a replicated stream", { timeout: 60_000 }, () => {
  test("whose consumer is behind from the start passes over nothing, and gets another one within 15 s", async (t) => {
    const jetstream = await ScriptedJetStream.open(t)
    jetstream.append("a", "b", "c")
    jetstream.replicaSees = 1
    const trial = await Trial.open(t, jetstream, 1n)
    await trial.poll(3_000)
    assert.deepEqual([trial.seen, trial.nextOffset], [[], undefined])
    // The next consumer is made on a server that has everything.
    jetstream.replicaSees = 3
    await trial.until(2, 15_000)
    assert.deepEqual(trial.seen, ["b", "c"])
    assert.equal(jetstream.consumers.length, 1, "the one that was given up is deleted")
    assert.deepEqual(trial.replaced, [{ stream: "", topic: scriptedStream, partition: 0, offset: 1n, head: 3n }])
  })

  test("whose consumer falls behind later gets another one, again and again until one is not behind", async (t) => {
    const jetstream = await ScriptedJetStream.open(t)
    jetstream.append("a")
    jetstream.replicaSees = 1
    const trial = await Trial.open(t, jetstream)
    await trial.until(1, 10_000)
    jetstream.append("b", "c")
    // The first within 15 s, the others within 5 s each, and one heartbeat's time until this test has seen it.
    const all = trial.until(3, 35_000)
    await trial.reached("the third replacement", () => trial.replaced.length >= 3)
    jetstream.catchUp()
    await all
    assert.deepEqual(trial.seen, ["a", "b", "c"])
  })

  test("goes on with its consumer when that catches up in time", async (t) => {
    const jetstream = await ScriptedJetStream.open(t)
    jetstream.append("a", "b")
    jetstream.replicaSees = 1
    const trial = await Trial.open(t, jetstream, 1n)
    const all = trial.until(1, 60_000)
    await trial.reached("a consumer", () => trial.asked("CONSUMER.CREATE") > 0)
    jetstream.catchUp()
    await all
    assert.deepEqual(trial.seen, ["b"])
    assert.deepEqual([trial.asked("CONSUMER.CREATE"), trial.replaced], [1, []])
  })

  test("passes over deleted records at the end when the leader says that they are none", async (t) => {
    const jetstream = await ScriptedJetStream.open(t)
    jetstream.append("a", "b", "c", "d")
    for (const sequence of [2, 3, 4]) jetstream.records.delete(sequence)
    const trial = await Trial.open(t, jetstream, 1n)
    await trial.poll(10_000)
    assert.deepEqual([trial.nextOffset, trial.head, trial.replaced], [4n, 4n, []])
    assert.equal(trial.asked("STREAM.MSG.GET"), 1)
    jetstream.append("e")
    await trial.until(1, 10_000)
    assert.deepEqual(trial.seen, ["e"])
  })

  test("finds a time at the leader, whatever the server of a consumer has", async (t) => {
    const jetstream = await ScriptedJetStream.open(t)
    jetstream.append("a", "b", "c", "d")
    jetstream.records.delete(3)
    jetstream.replicaSees = 1
    const trial = await Trial.open(t, jetstream)
    const place = { stream: "", topic: scriptedStream, partition: 0 }
    const made = BigInt(Date.parse(scriptedLineage)) * 1000n
    const times = [0n, made + 2_000_000n, made + 2_001_000n, made + 3_000_000n, made + 9_000_000n]
    const found = await trial.session.log.locate(
      times.map((value) => ({ ...place, at: { kind: "timestampMicros", value } })),
    )
    assert.deepEqual(
      found.map((one) => (one instanceof Error ? one : one.offset)),
      [0n, 1n, 3n, 3n, 4n],
    )
  })

  test("that waits at the end asks the leader once in 10 s", async (t) => {
    const jetstream = await ScriptedJetStream.open(t)
    jetstream.append("a")
    const trial = await Trial.open(t, jetstream)
    await trial.until(1, 10_000)
    const before = jetstream.requests.length
    await trial.poll(25_000)
    const asked = jetstream.requests.slice(before).filter((request) => !request.startsWith("CONSUMER.MSG"))
    assert.ok(asked.length >= 2 && asked.length <= 3, `asked ${asked.join(", ")}`)
    assert.deepEqual(trial.replaced, [])
  })

  test("of one server asks nobody while its pull is open", async (t) => {
    const jetstream = await ScriptedJetStream.open(t)
    jetstream.replicas = 1
    jetstream.append("a")
    const trial = await Trial.open(t, jetstream)
    await trial.until(1, 10_000)
    const before = jetstream.requests.length
    await trial.poll(25_000)
    assert.deepEqual(jetstream.requests.slice(before), [])
  })
})
