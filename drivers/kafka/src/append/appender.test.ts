import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import {
  type AppendOptions,
  type AppendResult,
  Headers,
  MillraceError,
  type TopicDescription,
} from "@millrace/contract"
import { SlabPool, seededRandom, systemClock } from "@millrace/runtime"
import { KafkaCluster } from "../cluster/kafka-cluster.ts"
import type { Struct } from "../protocol/codec.ts"
import { KafkaBatchWriter } from "../records/batch-writer.ts"
import {
  metadata,
  type Received,
  type Reply,
  ScriptedBroker,
  topicEntry,
} from "../wire/scripted-broker.test-support.ts"
import { Appender } from "./appender.ts"

const id = "AAAAAAAAAAAAAAAAAAAAAQ"
const newerId = "AAAAAAAAAAAAAAAAAAAAAg"

/** What a Produce request carries, by partition. */
interface Carried {
  readonly index: number
  readonly records: Uint8Array
}

class Bench {
  readonly broker: ScriptedBroker
  readonly appender: Appender
  topics: Struct[] = [
    topicEntry(
      "s.t",
      id,
      Array.from({ length: 3 }, () => ({ leader: 0, epoch: 1 })),
    ),
  ]
  /** Answers one partition of a Produce request. */
  answer: (partition: Carried, request: Received) => Struct | undefined = () => undefined
  brokerTime = false
  more: (request: Received) => Reply | Promise<Reply | undefined> | undefined = () => undefined
  readonly #pool = new SlabPool()
  readonly #ends = [0n, 0n, 0n]

  private constructor(broker: ScriptedBroker, appender: Appender) {
    this.broker = broker
    this.appender = appender
  }

  static async open(t: TestContext, requestTimeoutMs = 5_000): Promise<Bench> {
    const broker = await ScriptedBroker.open()
    t.after(() => broker.close())
    const cluster = new KafkaCluster({
      bootstrap: [{ host: "127.0.0.1", port: broker.port }],
      clientId: "tester",
      requestTimeoutMs,
      metadataAgeMs: 300_000,
      clock: systemClock,
      random: seededRandom(7),
    })
    t.after(() => cluster.close())
    const appender: Appender = new Appender({
      cluster,
      fact: () => ({ limitBytes: 1_000, brokerTime: bench.brokerTime }),
    })
    const bench: Bench = new Bench(broker, appender)
    broker.script = (request) => bench.#reply(request)
    await cluster.connect(5_000)
    return bench
  }

  get topic(): TopicDescription {
    return {
      stream: "s",
      topic: "t",
      lineage: id,
      partitions: [0, 1, 2].map((partition) => ({ partition })),
      durability: "written",
      offsetDurability: "written",
      deduplicationWindowMs: 0,
      deduplicateIds: false,
    }
  }

  append(partition: number, payload: string, options: AppendOptions = {}): Promise<AppendResult> {
    const writer = new KafkaBatchWriter({ topic: this.topic, partition }, this.#pool, { records: 10, bytes: 10_000 })
    const record = { key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined }
    writer.tryAppend({ ...record, payload: Buffer.from(payload) })
    const batch = writer.seal({ id: 0n, timestampMicros: 0n, resend: false })
    const result = this.appender.append(batch, options)
    batch.release()
    return result
  }

  get produced(): Received[] {
    return this.broker.requests.filter(({ api }) => api === "Produce")
  }

  async #reply(request: Received): Promise<Reply | undefined> {
    const own = await this.more(request)
    if (own !== undefined) return own
    if (request.api === "Metadata") {
      const asked = request.body.topics as readonly { readonly name: string }[]
      const topics = asked.map(
        ({ name }) => this.topics.find((topic) => topic.name === name) ?? { ...topicEntry(name, id, []), errorCode: 3 },
      )
      return { message: metadata([{ nodeId: 0, port: this.broker.port }], topics) }
    }
    if (request.api !== "Produce") return undefined
    const responses = (request.body.topicData as readonly Struct[]).map(({ name, topicId, partitionData }) => ({
      name,
      topicId,
      partitionResponses: (partitionData as readonly Carried[]).map((carried) => this.#stored(carried, request)),
    }))
    return { message: { responses, throttleTimeMs: 0, nodeEndpoints: [] } }
  }

  #stored(carried: Carried, request: Received): Struct {
    const { index } = carried
    const fine = { index, errorCode: 0, logAppendTimeMs: -1n, logStartOffset: 0n, recordErrors: [], errorMessage: null }
    const own = this.answer(carried, request)
    if (own !== undefined) return { ...fine, baseOffset: -1n, ...own }
    const baseOffset = this.#ends[index] as bigint
    this.#ends[index] = baseOffset + BigInt(Buffer.from(carried.records).readInt32BE(57))
    return { ...fine, baseOffset }
  }
}

function indexes(request: Received): number[] {
  return (request.body.topicData as readonly { partitionData: readonly Carried[] }[]).flatMap(({ partitionData }) =>
    partitionData.map(({ index }) => index),
  )
}

async function failure(promise: Promise<unknown>): Promise<MillraceError> {
  const error = await promise.then(
    () => assert.fail("it should have failed"),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof MillraceError, String(error))
  return error
}

test("batches of one turn share a request; those of one partition go one behind the other", async (t) => {
  const bench = await Bench.open(t)
  await bench.append(0, "warm")
  const before = bench.produced.length
  const results = await Promise.all([0, 1, 2, 0, 1, 0].map((partition, index) => bench.append(partition, `${index}`)))
  assert.deepEqual(bench.produced.slice(before).map(indexes), [[0, 1, 2], [0, 1], [0]])
  assert.deepEqual(
    results.map(({ base }) => base),
    [1n, 0n, 0n, 2n, 1n, 3n],
  )
  const [request] = bench.produced.slice(before)
  assert.ok(request !== undefined)
  assert.equal(request.body.acks, -1, "all replicas that are in sync have it")
  assert.deepEqual(
    (request.body.topicData as readonly Struct[]).map(({ topicId }) => topicId),
    [id],
  )
})

test("the order of a partition holds while its leader has to be looked up first", async (t) => {
  const bench = await Bench.open(t)
  const results = Promise.all(Array.from({ length: 20 }, (_, index) => bench.append(index % 2, `${index}`)))
  const bases = (await results).map(({ base }) => base)
  assert.deepEqual(
    bases,
    Array.from({ length: 20 }, (_, index) => BigInt(index >> 1)),
  )
})

test("each batch has its own outcome", async (t) => {
  const bench = await Bench.open(t)
  await bench.append(0, "warm")
  bench.answer = ({ index }) =>
    index === 1 ? { errorCode: 87, recordErrors: [{ batchIndex: 0, batchIndexErrorMessage: "no key" }] } : undefined
  const [first, second, third] = await Promise.allSettled([0, 1, 2].map((partition) => bench.append(partition, "x")))
  assert.equal(first?.status, "fulfilled")
  assert.equal(third?.status, "fulfilled")
  assert.ok(second?.status === "rejected")
  assert.match(
    second.reason.message,
    /partition 1 of topic "s\/t" failed: Kafka answered INVALID_RECORD \(87\).*record 0: no key/,
  )
  assert.deepEqual(second.reason.context.partition, 1)
})

for (const [code, kind, retryable, outcome] of [
  [6, "not-leader", true, "rejected"],
  [7, "timeout", true, "unknown"],
  [19, "throttled", true, "rejected"],
  [20, "timeout", true, "unknown"],
  [45, "sequence", false, "rejected"],
  [47, "fenced", false, "rejected"],
  [59, "sequence", false, "rejected"],
  [29, "permission", false, "rejected"],
  [-1, "storage", true, "unknown"],
] as const) {
  test(`error ${code} of a partition is ${kind}, ${outcome}`, async (t) => {
    const bench = await Bench.open(t)
    bench.answer = () => ({ errorCode: code })
    const error = await failure(bench.append(0, "x", { identity: { producerId: 1n, epoch: 0, sequence: 3 } }))
    assert.deepEqual([error.kind, error.retryable, error.outcome], [kind, retryable, outcome])
  })
}

test("a batch that is too large is told with its size and the topic's limit", async (t) => {
  const bench = await Bench.open(t)
  bench.answer = () => ({ errorCode: 10 })
  const error = await failure(bench.append(0, "x".repeat(2_000)))
  assert.equal(error.kind, "record-too-large")
  assert.equal(error.outcome, "rejected")
  assert.equal(error.context.limitBytes, 1_000)
  assert.ok(Number(error.context.sizeBytes) > 2_000)
  assert.match(error.message, /max\.message\.bytes \(1000\)/)
})

test("a duplicate whose offset the broker has forgotten is a success without one", async (t) => {
  const bench = await Bench.open(t)
  bench.answer = () => ({ errorCode: 46 })
  assert.deepEqual(await bench.append(0, "x"), { contiguous: false, duplicates: 1 })
})

test("the append time is told where the topic has the broker's times, and only there", async (t) => {
  const bench = await Bench.open(t)
  bench.answer = () => ({ errorCode: 0, baseOffset: 4n, logAppendTimeMs: 1_700_000_000_123n })
  assert.deepEqual(await bench.append(0, "x"), { base: 4n, contiguous: true, duplicates: 0 })
  bench.brokerTime = true
  assert.equal((await bench.append(0, "x")).timestampMicros, 1_700_000_000_123_000n)
})

test("a leader that moved is looked up again for the next batch", async (t) => {
  const bench = await Bench.open(t)
  bench.answer = () => ({ errorCode: 6 })
  await failure(bench.append(0, "x"))
  bench.answer = () => undefined
  const asked = bench.broker.requests.filter(({ api }) => api === "Metadata").length
  assert.equal((await bench.append(0, "x")).base, 0n)
  assert.equal(bench.broker.requests.filter(({ api }) => api === "Metadata").length, asked + 1)
})

test("a topic that the leader does not know is gone, was recreated, or is not known there yet", async (t) => {
  const bench = await Bench.open(t)
  bench.answer = () => ({ errorCode: 100 })
  const behind = await failure(bench.append(0, "x"))
  assert.deepEqual([behind.kind, behind.retryable, behind.outcome], ["not-leader", true, "rejected"])
  bench.topics = [topicEntry("s.t", newerId, [{ leader: 0, epoch: 0 }])]
  const recreated = await failure(bench.append(0, "x"))
  assert.deepEqual([recreated.kind, recreated.retryable, recreated.outcome], ["not-found", false, "rejected"])
  assert.match(recreated.message, /deleted since/)
  bench.topics = []
  const gone = await failure(bench.append(0, "x"))
  assert.deepEqual([gone.kind, gone.outcome], ["not-found", "rejected"])
})

test("on a broker that knows no ids in Produce, a topic that is known to be another refuses the batch here", async (t) => {
  const bench = await Bench.open(t)
  bench.broker.offer = { Produce: [3, 12] }
  bench.broker.cutAll()
  bench.topics = [
    topicEntry(
      "s.t",
      newerId,
      Array.from({ length: 3 }, () => ({ leader: 0, epoch: 0 })),
    ),
  ]
  const error = await failure(bench.append(0, "x"))
  assert.equal(error.kind, "not-found")
  assert.equal(bench.produced.length, 0)
})

test("version 12 and older name the topic, and answers are matched by name", async (t) => {
  const bench = await Bench.open(t)
  bench.broker.offer = { Produce: [3, 9] }
  bench.broker.cutAll()
  const results = await Promise.all([bench.append(2, "a"), bench.append(1, "b")])
  assert.deepEqual(
    results.map(({ base }) => base),
    [0n, 0n],
  )
  assert.equal(bench.produced[0]?.version, 9)
})

test("a lost answer is an unknown outcome, silence too", async (t) => {
  const bench = await Bench.open(t, 300)
  await bench.append(0, "warm")
  bench.more = ({ api }) => (api === "Produce" ? "cut" : undefined)
  const cut = await failure(bench.append(0, "x"))
  assert.deepEqual([cut.kind, cut.retryable, cut.outcome], ["connection", true, "unknown"])
  bench.more = ({ api }) => (api === "Produce" ? "silence" : undefined)
  const mute = await failure(bench.append(0, "x"))
  assert.deepEqual([mute.kind, mute.retryable, mute.outcome], ["timeout", true, "unknown"])
})

test("an answer that leaves a partition out is an unknown outcome", async (t) => {
  const bench = await Bench.open(t)
  bench.more = ({ api }) =>
    api === "Produce" ? { message: { responses: [], throttleTimeMs: 0, nodeEndpoints: [] } } : undefined
  const error = await failure(bench.append(0, "x"))
  assert.deepEqual([error.kind, error.outcome], ["protocol", "unknown"])
})

test("a partition that does not exist is refused before anything is sent", async (t) => {
  const bench = await Bench.open(t)
  bench.topics = [topicEntry("s.t", id, [{ leader: 0, epoch: 1 }])]
  const error = await failure(bench.append(2, "x"))
  assert.equal(error.kind, "not-found")
  assert.equal(bench.produced.length, 0)
})

test("close refuses what was not sent", async (t) => {
  const bench = await Bench.open(t)
  const waiting = bench.append(0, "x")
  bench.appender.close()
  const error = await failure(waiting)
  assert.deepEqual([error.kind, error.outcome], ["closed", "rejected"])
  assert.equal((await failure(bench.append(0, "x"))).kind, "closed")
})
