/** What is said of a change that was made, or may have been, when what follows it goes wrong. */
import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import type { TopicSpec } from "@millrace/contract"
import { seededRandom, systemClock } from "@millrace/runtime"
import { KafkaCluster } from "../cluster/kafka-cluster.ts"
import { Pauses } from "../pauses.ts"
import type { Struct } from "../protocol/codec.ts"
import {
  type BrokerScript,
  metadata,
  type Received,
  ScriptedBroker,
  topicEntry,
} from "../wire/scripted-broker.test-support.ts"
import { KafkaCatalog } from "./catalog.ts"
import { TopicFacts } from "./topic-facts.ts"

const id = "AAAAAAAAAAAAAAAAAAAAAQ"
const name = { stream: "s", topic: "t" }
const spec: TopicSpec = {
  partitions: 2,
  durability: "written",
  offsetDurability: "written",
  deduplicationWindowMs: 0,
  deduplicateIds: false,
}

/** The topic s.t with two partitions, and a script that comes before what the broker answers by itself. */
async function bench(t: TestContext, script: BrokerScript, brokers = 1) {
  const open: ScriptedBroker[] = []
  const scene = { controllerId: 0, catalog: undefined as unknown as KafkaCatalog, brokers: open }
  for (let node = 0; node < brokers; node++) {
    const broker = await ScriptedBroker.open(async (request) => {
      const own = await script({ ...request, connection: node })
      return own ?? (request.api === "ApiVersions" ? undefined : { message: ordinary(request) })
    })
    t.after(() => broker.close())
    open.push(broker)
  }
  const ordinary = ({ api, body }: Received): Struct => {
    if (api === "Metadata") {
      const entry = topicEntry("s.t", id, [
        { leader: 0, epoch: 0 },
        { leader: 0, epoch: 0 },
      ])
      const asked = (body.topics as readonly unknown[] | null)?.length === 0 ? [] : [entry]
      const nodes = open.map(({ port }, nodeId) => ({ nodeId, port }))
      return { ...metadata(nodes, asked), controllerId: scene.controllerId }
    }
    if (api === "CreateTopics") return { topics: [{ ...created, errorCode: 0 }] }
    if (api === "ListOffsets") {
      const asked =
        (body.topics as { partitions: { partitionIndex: number; timestamp: bigint }[] }[])[0]?.partitions ?? []
      const partitions = asked.map(({ partitionIndex, timestamp }) => ({
        ...{ partitionIndex, errorCode: 0, timestamp: -1n, offset: timestamp === -2n ? 0n : 10n, leaderEpoch: 0 },
      }))
      return { topics: [{ name: "s.t", partitions }] }
    }
    if (api === "DescribeConfigs") {
      return { results: [{ errorCode: 0, errorMessage: null, resourceType: 2, resourceName: "s.t", configs: [] }] }
    }
    throw new Error(`the script says nothing of ${api}`)
  }
  const parts = { clock: systemClock, random: seededRandom(3) }
  const cluster = new KafkaCluster({
    ...{ ...parts, clientId: "tester", requestTimeoutMs: 1_000, metadataAgeMs: 300_000 },
    bootstrap: open.map(({ port }) => ({ host: "127.0.0.1", port })),
  })
  t.after(() => cluster.close())
  await cluster.connect(5_000)
  scene.catalog = new KafkaCatalog({
    cluster,
    clock: systemClock,
    pauses: new Pauses(systemClock),
    facts: new TopicFacts(),
  })
  return scene
}

const created = { name: "s.t", topicId: id, errorMessage: null, numPartitions: 2, replicationFactor: 1, configs: [] }

test("a topic that is made, and cannot be described: the outcome is unknown", async (t) => {
  const forbidden = { errorCode: 29, errorMessage: null, resourceType: 2, resourceName: "s.t", configs: [] }
  const { catalog } = await bench(t, ({ api }) =>
    api === "DescribeConfigs" ? { message: { results: [forbidden] } } : undefined,
  )
  await assert.rejects(catalog.createTopic(name, spec), { kind: "permission", outcome: "unknown" })
  await assert.rejects(catalog.describeTopic(name), { kind: "permission", outcome: "rejected" })
})

test("a topic that is made is waited for, also when a broker hangs up meanwhile", async (t) => {
  let made = false
  let cuts = 0
  const { catalog } = await bench(t, ({ api, body }) => {
    if (api === "CreateTopics") made = true
    const looks = made && api === "Metadata" && (body.topics as readonly unknown[]).length > 0
    return looks && cuts++ === 0 ? "cut" : undefined
  })
  assert.equal((await catalog.createTopic(name, spec)).partitions.length, 2)
  assert.ok(cuts > 1)
})

test("a topic that nobody shows in time: the outcome is unknown", async (t) => {
  const { catalog, brokers } = await bench(t, ({ api }) => (api === "ListOffsets" ? "silence" : undefined))
  await assert.rejects(catalog.createTopic(name, spec), {
    kind: "timeout",
    outcome: "unknown",
    message: /has a leader/,
  })
  assert.ok(brokers[0]?.requests.some(({ api }) => api === "CreateTopics"))
})

test("records that are removed when the connection is cut: the outcome is unknown, also when one partition is done", async (t) => {
  const gone = { topics: [{ name: "s.t", partitions: [{ partitionIndex: 0, lowWatermark: 10n, errorCode: 0 }] }] }
  const refused = { topics: [{ name: "s.t", partitions: [{ partitionIndex: 1, lowWatermark: -1n, errorCode: 44 }] }] }
  let mode: "cut" | "half" = "cut"
  const { catalog } = await bench(t, ({ api, body }) => {
    if (api !== "DeleteRecords") return undefined
    if (mode === "cut") return "cut"
    const [topic] = body.topics as readonly { readonly partitions: readonly { readonly partitionIndex: number }[] }[]
    return { message: topic?.partitions[0]?.partitionIndex === 0 ? gone : refused }
  })
  await assert.rejects(catalog.trim({ ...name, partition: 0 }, 5n), { kind: "connection", outcome: "unknown" })
  mode = "half"
  await assert.rejects(catalog.purgeTopic(name), { outcome: "unknown", message: /partition 1 of topic "s\/t"/ })
})

test("a broker that is not the controller any more: who is, is asked for, and gets the request", async (t) => {
  let asked = 0
  const scene = await bench(
    t,
    ({ api, connection }) => {
      if (api !== "CreateTopics" || connection === 1) return undefined
      asked++
      scene.controllerId = 1
      return { message: { topics: [{ ...created, errorCode: 41 }] } }
    },
    2,
  )
  assert.equal((await scene.catalog.createTopic(name, spec)).lineage, id)
  assert.equal(asked, 1)
})
