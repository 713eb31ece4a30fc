import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { PartitionRead, ReadLimits, ReadPosition } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { FakeCluster } from "./fake-cluster.test-support.ts"
import { type KafkaReader, openKafkaReader } from "./reader.ts"

const limits: ReadLimits = { maxRecords: 1000, maxBytes: 1_000_000, minRecords: 1, maxWaitMs: 60_000 }

interface Bench {
  readonly clock: VirtualClock
  readonly cluster: FakeCluster
  readonly reader: KafkaReader
}

/** One topic `t` with the id `A`, its partitions led by these nodes. */
function bench(leaders: readonly number[]): Bench {
  const clock = new VirtualClock()
  const cluster = new FakeCluster(clock)
  cluster.addTopic("t", "A", leaders)
  const random = seededRandom(1)
  return { clock, cluster, reader: openKafkaReader({ cluster, clock, random }, { isolation: "committed" }) }
}

function at(partition: number, offset = 0n, lineage = "A"): ReadPosition {
  return { stream: "", topic: "t", partition, offset, lineage }
}

function texts(reads: readonly PartitionRead[]): string[] {
  return reads.flatMap((read) => {
    if (read.error !== undefined) return [`${read.partition}: ${read.error.kind}`]
    return read.batches.flatMap((batch) =>
      Array.from(
        { length: batch.count },
        (_, index) => `${read.partition}: ${Buffer.from(batch.payload(index) ?? [])}`,
      ),
    )
  })
}

/** The answer, without any time passing. */
async function now(clock: VirtualClock, poll: Promise<PartitionRead[]>): Promise<PartitionRead[] | "pending"> {
  for (let turn = 0; turn < 5; turn++) await clock.advance(0)
  return Promise.race([poll, new Promise<"pending">((resolve) => setImmediate(() => resolve("pending")))])
}

async function settled(clock: VirtualClock, poll: Promise<PartitionRead[]>, mostMs: number): Promise<PartitionRead[]> {
  let reads: PartitionRead[] | undefined
  let failure: unknown
  poll.then(
    (answer) => {
      reads = answer
    },
    (error: unknown) => {
      failure = error
    },
  )
  for (let turn = 0; turn < 10 + mostMs / 5; turn++) {
    if (failure !== undefined) throw failure
    if (reads !== undefined) return reads
    await clock.advance(turn < 10 ? 0 : 5)
  }
  throw new Error(`no answer within ${mostMs} ms`)
}

describe("a reader over a cluster", () => {
  test("all leaders are asked at once, and the poll answers with the first that has something", async () => {
    const { clock, cluster, reader } = bench([1, 2])
    reader.set([at(0), at(1)])
    const poll = reader.next(limits)
    assert.equal(await now(clock, poll), "pending")
    const long = cluster.fetches.filter(({ request }) => request.maxWaitMs > 0)
    assert.deepEqual(long.map(({ node }) => node).toSorted(), [1, 2])
    cluster.append("A", 1, ["x"])
    assert.deepEqual(texts(await settled(clock, poll, 0)), ["1: x"])
    await reader.close()
    assert.equal(clock.timers, 2, "only the fake brokers' own timers are left")
  })

  test("a leader that answers a little later has its turns all the same", async () => {
    const { clock, cluster, reader } = bench([1, 2])
    for (let batch = 0; batch < 9; batch++) for (const partition of [0, 1]) cluster.append("A", partition, [`${batch}`])
    cluster.delaysMs.set(2, 20)
    reader.set([at(0), at(1)])
    const seen: string[] = []
    for (let poll = 0; poll < 3; poll++) {
      seen.push(...texts(await settled(clock, reader.next({ ...limits, maxRecords: 2 }), 100)))
    }
    assert.equal(seen.filter((text) => text.startsWith("1: ")).length, 3, seen.join())
    await reader.close()
  })

  test("a leader that does not answer is not waited for", async () => {
    const { clock, cluster, reader } = bench([1, 2])
    cluster.append("A", 0, ["a"])
    cluster.delaysMs.set(2, 5000)
    reader.set([at(0), at(1)])
    assert.deepEqual(texts(await settled(clock, reader.next(limits), 60)), ["0: a"])
    await reader.close()
  })

  test("what the other leaders bring meanwhile comes with the next poll", async () => {
    const { clock, cluster, reader } = bench([1, 2])
    reader.set([at(0), at(1)])
    const poll = reader.next(limits)
    await now(clock, poll)
    cluster.append("A", 0, ["a"])
    cluster.append("A", 1, ["x"])
    const seen = texts(await settled(clock, poll, 0))
    if (seen.length < 2) seen.push(...texts(await settled(clock, reader.next(limits), 0)))
    assert.deepEqual(seen.toSorted(), ["0: a", "1: x"])
    await reader.close()
  })

  test("a session tells the broker only what changed, and forgets what is not wanted", async () => {
    const { clock, cluster, reader } = bench([1, 1, 1])
    reader.set([at(0), at(1), at(2)])
    const first = reader.next(limits)
    await now(clock, first)
    cluster.append("A", 1, ["x"])
    await settled(clock, first, 0)
    await clock.advance(600)
    const second = reader.next(limits)
    await now(clock, second)
    await clock.advance(1100)
    const long = cluster.fetches.map(({ request }) => request).filter(({ sessionEpoch }) => sessionEpoch !== -1)
    assert.deepEqual(long[0]?.sessionEpoch, 0)
    assert.equal(long[0]?.topics[0]?.partitions.length, 3)
    const last = long.at(-1)
    assert.ok((last?.sessionEpoch ?? 0) >= 2, "the session goes on")
    assert.deepEqual(last?.topics, [], "nothing has changed")
    reader.set([at(0)])
    await clock.advance(600)
    const shrunk = cluster.fetches.at(-1)?.request
    assert.deepEqual(
      shrunk?.forgottenTopicsData?.flatMap(({ partitions = [] }) => partitions),
      [1, 2],
    )
    await reader.close()
  })

  for (const code of [70, 71]) {
    test(`a session that the broker refuses with ${code} is begun anew, and nothing is lost`, async () => {
      const { clock, cluster, reader } = bench([1])
      reader.set([at(0)])
      cluster.append("A", 0, ["a"])
      assert.deepEqual(texts(await settled(clock, reader.next(limits), 0)), ["0: a"])
      await clock.advance(600)
      cluster.refuseSession = code
      const poll = reader.next(limits)
      await clock.advance(600)
      cluster.append("A", 0, ["b"])
      assert.deepEqual(texts(await settled(clock, poll, 2000)), ["0: b"])
      await reader.close()
    })
  }

  test("a partition that is added while the long poll is under way is read at once", async () => {
    const { clock, cluster, reader } = bench([1, 1])
    cluster.append("A", 1, ["there already"])
    reader.set([at(0)])
    const poll = reader.next(limits)
    assert.equal(await now(clock, poll), "pending")
    reader.set([at(0), at(1)])
    assert.deepEqual(texts(await settled(clock, poll, 0)), ["1: there already"])
    await reader.close()
  })

  test("also the third within a moment waits no longer than a short poll", async () => {
    const { clock, cluster, reader } = bench([1, 1, 1])
    cluster.append("A", 2, ["there already"])
    reader.set([at(0)])
    const poll = reader.next(limits)
    await now(clock, poll)
    reader.set([at(0), at(1)])
    await now(clock, poll)
    reader.set([at(0), at(1), at(2)])
    assert.deepEqual(texts(await settled(clock, poll, 50)), ["2: there already"])
    await reader.close()
  })

  test("records that both requests to a leader bring come once", async () => {
    const { clock, cluster, reader } = bench([1, 1])
    reader.set([at(0)])
    const poll = reader.next(limits)
    await now(clock, poll)
    reader.set([at(0), at(1)])
    await now(clock, poll)
    cluster.append("A", 0, ["a"])
    assert.deepEqual(texts(await settled(clock, poll, 0)), ["0: a"])
    const next = reader.next(limits)
    await now(clock, next)
    const asking = cluster.fetches.slice(-2).filter(({ request }) => request.maxWaitMs > 0)
    assert.equal(asking.length, 2, "two requests that wait ask for partition 1")
    cluster.append("A", 1, ["x"])
    assert.deepEqual(texts(await settled(clock, next, 0)), ["1: x"])
    const last = reader.next({ ...limits, maxWaitMs: 1000 })
    assert.deepEqual(texts(await settled(clock, last, 1100)), [])
    await reader.close()
  })

  test("an answer to a position that was replaced meanwhile is dropped", async () => {
    const { clock, cluster, reader } = bench([1])
    for (const text of ["a", "b", "c"]) cluster.append("A", 0, [text])
    reader.set([at(0, 3n)])
    const poll = reader.next(limits)
    await now(clock, poll)
    reader.set([at(0, 1n)])
    assert.deepEqual(texts(await settled(clock, poll, 0)), ["0: b", "0: c"])
    cluster.append("A", 0, ["d"])
    assert.deepEqual(texts(await settled(clock, reader.next(limits), 600)), ["0: d"])
    await reader.close()
  })

  for (const [name, code] of [
    ["NOT_LEADER_OR_FOLLOWER", 6],
    ["FENCED_LEADER_EPOCH", 74],
  ] as const) {
    test(`a leader that moved (${name}) is followed, and every record comes once`, async () => {
      const { clock, cluster, reader } = bench([1])
      reader.set([at(0)])
      cluster.append("A", 0, ["a"])
      assert.deepEqual(texts(await settled(clock, reader.next(limits), 0)), ["0: a"])
      const log = cluster.partition("A", 0)
      if (code === 6) log.leader = 2
      log.leaderEpoch = 1
      const poll = reader.next(limits)
      cluster.append("A", 0, ["b"])
      assert.deepEqual(texts(await settled(clock, poll, 2000)), ["0: b"])
      await reader.close()
    })
  }

  test("a broker that does not know a topic yet is asked again", async () => {
    const { clock, cluster, reader } = bench([1])
    cluster.append("A", 0, ["a"])
    cluster.faults.set("A/0", 100)
    reader.set([at(0)])
    assert.deepEqual(texts(await settled(clock, reader.next(limits), 1000)), ["0: a"])
    await reader.close()
  })

  test("a recreated topic is another history, a deleted one is missing, and each is told once", async () => {
    const { clock, cluster, reader } = bench([1])
    reader.set([at(0)])
    const poll = reader.next(limits)
    await now(clock, poll)
    cluster.partitions.delete("A/0")
    cluster.addTopic("t", "B", [1])
    cluster.append("B", 0, ["new"])
    assert.deepEqual(texts(await settled(clock, poll, 3000)), ["0: history-changed"])
    reader.set([at(0, 0n, "B")])
    assert.deepEqual(texts(await settled(clock, reader.next(limits), 600)), ["0: new"])
    cluster.topicIds.delete("t")
    cluster.partitions.delete("B/0")
    assert.deepEqual(texts(await settled(clock, reader.next(limits), 3000)), ["0: not-found"])
    assert.equal(await now(clock, reader.next(limits)), "pending")
    await reader.close()
  })

  test("an offset out of range is told with the ends of the log, unless it lies within after all", async () => {
    const { clock, cluster, reader } = bench([1, 1])
    cluster.append("A", 0, ["a", "b", "c"])
    cluster.partition("A", 0).first = 2n
    cluster.append("A", 1, ["x"])
    cluster.faults.set("A/1", 1)
    reader.set([at(0, 1n), at(1)])
    const seen: PartitionRead[] = []
    while (seen.length < 2) seen.push(...(await settled(clock, reader.next(limits), 1000)))
    assert.deepEqual(texts(seen).toSorted(), ["0: offset-out-of-range", "1: x"])
    const context = seen.find(({ error }) => error !== undefined)?.error?.context
    assert.deepEqual([context?.offset, context?.first, context?.end], [1n, 2n, 3n])
    await reader.close()
  })

  test("a damaged batch is told behind those before it, and does not spoil the other partitions", async () => {
    const { clock, cluster, reader } = bench([1, 1])
    cluster.append("A", 0, ["a"])
    cluster.append("A", 0, ["b"], (bytes) => bytes.writeUInt8((bytes.at(-2) as number) ^ 1, bytes.length - 2))
    cluster.append("A", 1, ["x"])
    reader.set([at(0), at(1)])
    const seen: string[] = []
    while (seen.length < 3) seen.push(...texts(await settled(clock, reader.next(limits), 1000)))
    assert.deepEqual(seen.toSorted(), ["0: a", "0: corruption", "1: x"])
    assert.ok(seen.indexOf("0: a") < seen.indexOf("0: corruption"))
    await reader.close()
  })

  test("with one leader gone the others go on; with all gone the poll fails, may be tried again, and comes back", async () => {
    const { clock, cluster, reader } = bench([1, 2])
    reader.set([at(0), at(1)])
    const poll = reader.next(limits)
    await now(clock, poll)
    cluster.kill(1)
    await clock.advance(3000)
    cluster.append("A", 1, ["x"])
    assert.deepEqual(texts(await settled(clock, poll, 600)), ["1: x"])
    const failing = reader.next(limits)
    failing.catch(() => {})
    cluster.kill(2)
    await assert.rejects(settled(clock, failing, 3000), { kind: "connection", retryable: true })
    const before = cluster.lookups
    const idle = reader.next(limits).catch(() => [])
    await clock.advance(10_000)
    assert.ok(cluster.lookups - before < 60, `${cluster.lookups - before} lookups in 10 s of outage`)
    await idle
    cluster.dead.clear()
    cluster.append("A", 0, ["a"])
    let seen: string[] = []
    for (let tries = 0; tries < 20 && seen.length === 0; tries++) {
      seen = texts(await settled(clock, reader.next(limits), 3000).catch(() => []))
    }
    assert.deepEqual(seen, ["0: a"])
    await reader.close()
  })

  test("nothing is fetched while nobody asks, but one answer ahead", async () => {
    const { clock, cluster, reader } = bench([1])
    cluster.append("A", 0, ["a"])
    reader.set([at(0)])
    await settled(clock, reader.next(limits), 0)
    await clock.advance(0)
    cluster.append("A", 0, ["b"])
    cluster.append("A", 0, ["c"])
    await clock.advance(5000)
    const asked = cluster.fetches.length
    await clock.advance(60_000)
    assert.equal(cluster.fetches.length, asked)
    assert.ok(asked <= 2, `${asked} fetches`)
    assert.deepEqual(texts(await settled(clock, reader.next(limits), 0)), ["0: b"])
    await reader.close()
  })

  test("a reader at the end that nobody asks sends nothing", async () => {
    const { clock, cluster, reader } = bench([1])
    reader.set([at(0)])
    assert.deepEqual(await settled(clock, reader.next({ ...limits, maxWaitMs: 100 }), 200), [])
    await clock.advance(600)
    const asked = cluster.fetches.length
    await clock.advance(60_000)
    assert.equal(cluster.fetches.length, asked)
    await reader.close()
  })

  test("a poll that asks for several records goes on fetching behind what it has", async () => {
    const { clock, cluster, reader } = bench([1])
    reader.set([at(0)])
    const poll = reader.next({ ...limits, minRecords: 3 })
    await now(clock, poll)
    for (const text of ["a", "b", "c"]) {
      cluster.append("A", 0, [text])
      await clock.advance(30)
    }
    assert.deepEqual(texts(await settled(clock, poll, 0)), ["0: a", "0: b", "0: c"])
    await reader.close()
  })

  test("a close at any moment settles the poll and leaves no connection", async () => {
    for (let turns = 0; turns < 12; turns++) {
      const { clock, cluster, reader } = bench([1, 2])
      cluster.append("A", 0, ["a"])
      reader.set([at(0), at(1)])
      const poll = reader.next({ ...limits, minRecords: 5 })
      for (let turn = 0; turn < turns; turn++) await Promise.resolve()
      const closed = reader.close()
      assert.deepEqual(await poll, [])
      await clock.advance(0)
      await closed
      assert.equal(cluster.openConnections, 0)
      await assert.rejects(reader.next(limits), { kind: "closed" })
    }
  })

  test("a partition of which its broker says nothing for 30 s is looked up: its leader may have moved", async () => {
    const { clock, cluster, reader } = bench([1, 1])
    cluster.append("A", 0, ["a"])
    reader.set([at(0), at(1)])
    assert.deepEqual(texts(await settled(clock, reader.next(limits), 100)), ["0: a"])
    cluster.deposed.add(1)
    cluster.partition("A", 0).leader = 2
    cluster.append("A", 0, ["b"])
    const before = cluster.lookups
    assert.deepEqual(texts(await settled(clock, reader.next(limits), 32_000)), ["0: b"])
    assert.equal(cluster.lookups - before, 1, "both partitions share one look")
    await reader.close()
  })

  test("a partition that a session has lost is told to the broker anew after 30 s", async () => {
    const { clock, cluster, reader } = bench([1, 1])
    for (const partition of [0, 1]) cluster.append("A", partition, ["a"])
    reader.set([at(0), at(1)])
    const seen = texts(await settled(clock, reader.next({ ...limits, minRecords: 2 }), 100))
    assert.deepEqual(seen.toSorted(), ["0: a", "1: a"])
    // A long poll that tells nothing new of either.
    await settled(clock, reader.next({ ...limits, maxWaitMs: 600 }), 1_000)
    cluster.forgotten.add("A/1")
    cluster.append("A", 1, ["b"])
    assert.deepEqual(texts(await settled(clock, reader.next(limits), 32_000)), ["1: b"])
    await reader.close()
  })

  test("an idle reader looks its topic up once in 30 s, and no more", async () => {
    const { clock, cluster, reader } = bench([1, 1, 2])
    reader.set([at(0), at(1), at(2)])
    await settled(clock, reader.next({ ...limits, maxWaitMs: 1_000 }), 2_000)
    const before = cluster.lookups
    await settled(clock, reader.next({ ...limits, maxWaitMs: 90_000 }), 92_000)
    const looks = cluster.lookups - before
    assert.ok(looks >= 2 && looks <= 6, `${looks} looks in 90 s over two brokers`)
    await reader.close()
  })
})
