import assert from "node:assert/strict"
import { test } from "node:test"
import type { MillraceError, Session, TopicDescription } from "@millrace/contract"
import { type Random, seededRandom } from "@millrace/runtime"
import { FaultProxy } from "@millrace/servers"
import { readBatches } from "./batch/encoded-batch.ts"
import { eviction, type Received, refusal, type Visitor } from "./connection/scripted-server.test-support.ts"
import { appendTo, Bench, connectTo } from "./session.test-support.ts"

const rounds = 200
const sendOperation = 160
const evictionReasons = [1, 4, 7, 13, 200]

test("whatever cuts an append off: what is told as rejected is not in the log, and what is told as stored is there once", async (t) => {
  await using bench = await Bench.open()
  const topic = await bench.topic()
  const told = new Map<string, string>()
  for (let round = 0; round < rounds; round++) {
    const random = seededRandom(7_000 + round)
    await using proxy = await FaultProxy.open({ to: { port: bench.iggy.server.port } })
    const session = await connectTo(bench.iggy, { port: proxy.port })
    bench.iggy.intercept = intruder(random)
    const storm = new Storm(session, topic, random)
    await storm.appends(round, told, () => proxy.cut(chance(random, 0.5) ? "end" : "reset"))
    await session.close()
  }
  bench.iggy.intercept = () => false
  const stored = new Map<string, number>()
  for (const { bytes } of bench.iggy.topic("s", "t").partitions[0]?.batches ?? []) {
    for (const batch of readBatches(bytes)) {
      const name = Buffer.from(batch.payload(0) ?? [])
        .toString("latin1")
        .split(" ")[0] as string
      stored.set(name, (stored.get(name) ?? 0) + 1)
    }
  }
  const tally: Record<string, number> = {}
  for (const [name, outcome] of told) {
    const copies = stored.get(name) ?? 0
    const end = `${outcome}, ${copies} stored`
    tally[end] = (tally[end] ?? 0) + 1
  }
  t.diagnostic(JSON.stringify(tally))
  const ends = Object.keys(tally).toSorted()
  assert.deepEqual(ends, ["rejected, 0 stored", "stored, 1 stored", "unknown, 0 stored", "unknown, 1 stored"])
})

/** Appends of all sizes that nobody awaits one by one, and one cut at any moment. */
class Storm {
  readonly #session: Session
  readonly #topic: TopicDescription
  readonly #random: Random

  constructor(session: Session, topic: TopicDescription, random: Random) {
    this.#session = session
    this.#topic = topic
    this.#random = random
  }

  async appends(round: number, told: Map<string, string>, cut: () => void): Promise<void> {
    // More than the connection has in flight at once, so that some wait for their turn when it falls.
    const count = 1 + (this.#random.uint32() % 60)
    const cutAt = this.#random.uint32() % (count + 1)
    if (chance(this.#random, 0.7)) await this.#append(`${round}:first`, told)
    const all: Promise<void>[] = []
    for (let index = 0; index < count; index++) {
      if (index === cutAt) await this.#pass(cut)
      all.push(this.#append(`${round}:${index}`, told))
    }
    if (cutAt === count) await this.#pass(cut)
    await Promise.all(all)
  }

  async #pass(cut: () => void): Promise<void> {
    for (let turns = this.#random.uint32() % 12; turns > 0; turns--)
      await new Promise((resolve) => setImmediate(resolve))
    cut()
    if (chance(this.#random, 0.3)) await new Promise((resolve) => setImmediate(resolve))
  }

  async #append(name: string, told: Map<string, string>): Promise<void> {
    const bytes = chance(this.#random, 0.2) ? this.#random.uint32() % 300_000 : this.#random.uint32() % 100
    const outcome = await appendTo(this.#session, this.#topic, [`${name} ${"x".repeat(bytes)}`]).then(
      () => "stored",
      (error: MillraceError) => error.outcome,
    )
    told.set(name, outcome)
  }
}

/** A server that now and then ends a session, refuses, or hangs up instead of storing. */
function intruder(random: Random): (request: Received, visitor: Visitor) => boolean {
  return ({ operation, ...request }, visitor) => {
    if (operation !== sendOperation || !chance(random, 0.03)) return false
    const what = random.uint32() % 3
    if (what === 0) visitor.send(eviction(evictionReasons[random.uint32() % evictionReasons.length] as number))
    else if (what === 1) visitor.send(refusal({ operation, ...request }, 58))
    else visitor.socket.destroy()
    return true
  }
}

function chance(random: Random, probability: number): boolean {
  return random.uint32() / 2 ** 32 < probability
}
