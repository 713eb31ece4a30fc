import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import { type ConnectionChange, MillraceError } from "@millrace/contract"
import { seededRandom, systemClock, VirtualClock } from "@millrace/runtime"
import { initProducerIdApi, metadataApi, offsetFetchApi } from "../protocol/api.ts"
import type { Struct } from "../protocol/codec.ts"
import {
  type BrokerScript,
  metadata,
  type Received,
  type Reply,
  ScriptedBroker,
  topicEntry,
} from "../wire/scripted-broker.test-support.ts"
import { type ClusterOptions, KafkaCluster } from "./kafka-cluster.ts"

const idA = "AAAAAAAAAAAAAAAAAAAAAQ"
const idB = "AAAAAAAAAAAAAAAAAAAAAg"

/** Brokers that tell the same of the cluster. */
class Scene {
  readonly brokers: ScriptedBroker[] = []
  readonly changes: ConnectionChange[] = []
  /** Entries of topics as metadata tells them now. */
  topics: Struct[] = []
  /** Which brokers metadata lists, by node; all when absent. */
  listed: number[] | undefined
  more: BrokerScript = () => undefined
  readonly #t: TestContext

  constructor(t: TestContext) {
    this.#t = t
  }

  async broker(port?: number): Promise<ScriptedBroker> {
    const broker = await ScriptedBroker.open((request) => this.#answer(request), port)
    this.#t.after(() => broker.close())
    this.brokers.push(broker)
    return broker
  }

  async connected(options: Partial<ClusterOptions> = {}): Promise<KafkaCluster> {
    const cluster = new KafkaCluster({
      bootstrap: [{ host: "127.0.0.1", port: this.brokers[0]?.port ?? 0 }],
      clientId: "tester",
      requestTimeoutMs: 5_000,
      metadataAgeMs: 300_000,
      clock: systemClock,
      random: seededRandom(7),
      onConnection: (change) => this.changes.push(change),
      ...options,
    })
    this.#t.after(() => cluster.close())
    await cluster.connect(5_000)
    return cluster
  }

  count(api: string): number {
    return this.brokers.flatMap(({ requests }) => requests).filter((request) => request.api === api).length
  }

  async #answer(request: Received): Promise<Reply | undefined> {
    const own = await this.more(request)
    if (own !== undefined || request.api !== "Metadata") return own
    const asked = request.body.topics as readonly { readonly name: string }[] | null
    const entries = (asked ?? []).map(
      ({ name }) => this.topics.find((topic) => topic.name === name) ?? { ...topicEntry(name, idA, []), errorCode: 3 },
    )
    const nodes = this.listed ?? this.brokers.map((_, index) => index)
    const brokers = nodes.map((nodeId) => ({ nodeId, port: this.brokers[nodeId]?.port ?? 0 }))
    return { message: metadata(brokers, asked === null ? this.topics : entries) }
  }
}

async function until(what: string, holds: () => boolean): Promise<void> {
  for (let turns = 0; !holds(); turns++) {
    assert.ok(turns < 5_000, `waited in vain for ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

const askId = { transactionalId: null, transactionTimeoutMs: 1 }

test("all who ask for topics at one time share one request, and what is known is not asked again", async (t) => {
  const scene = new Scene(t)
  await scene.broker()
  scene.topics = [topicEntry("a", idA, [{ leader: 0, epoch: 1 }]), topicEntry("b", idB, [{ leader: 0, epoch: 1 }])]
  const cluster = await scene.connected()
  const before = scene.count("Metadata")
  const seen = await Promise.all(Array.from({ length: 50 }, (_, index) => cluster.topic(index % 2 === 0 ? "a" : "b")))
  assert.equal(seen[1]?.topicId, idB)
  assert.equal(scene.count("Metadata"), before + 1)
  await cluster.topic("a")
  assert.equal(scene.count("Metadata"), before + 1)
  const created = scene.brokers[0]?.requests.at(-1)?.body.allowAutoTopicCreation
  assert.equal(created, false, "asking for a topic never creates it")
})

test("a topic that does not exist is refused by name, and is looked for again the next time", async (t) => {
  const scene = new Scene(t)
  await scene.broker()
  const cluster = await scene.connected()
  await assert.rejects(cluster.topic("s.t"), { kind: "not-found", message: 'topic "s/t" does not exist' })
  scene.topics = [topicEntry("s.t", idA, [{ leader: 0, epoch: 0 }])]
  assert.equal((await cluster.topic("s.t")).topicId, idA)
})

test("a topic in doubt whose metadata stays the same is asked about ever more seldom", async (t) => {
  const scene = new Scene(t)
  await scene.broker()
  scene.topics = [topicEntry("a", idA, [{ leader: 0, epoch: 1 }])]
  const cluster = await scene.connected()
  await cluster.topic("a")
  const before = scene.count("Metadata")
  const start = performance.now()
  for (let doubt = 0; doubt < 4; doubt++) {
    cluster.invalidate("a")
    await cluster.topic("a")
  }
  assert.ok(performance.now() - start >= 650, "the waits are 100, 200 and 400 ms")
  assert.equal(scene.count("Metadata"), before + 4)
})

test("requests go to the leader; when the leader moves, they follow once that is known", async (t) => {
  const scene = new Scene(t)
  const [first, second] = [await scene.broker(), await scene.broker()]
  scene.topics = [topicEntry("a", idA, [{ leader: 0, epoch: 1 }])]
  scene.more = ({ api }) => (api === "InitProducerId" ? { message: { producerId: 1n, producerEpoch: 0 } } : undefined)
  const cluster = await scene.connected()
  const to = { kind: "leader", topic: "a", partition: 0 } as const
  await cluster.request(initProducerIdApi, askId, to)
  assert.equal(first.requests.at(-1)?.api, "InitProducerId")
  scene.topics = [topicEntry("a", idA, [{ leader: 1, epoch: 2 }])]
  cluster.invalidate("a")
  await cluster.request(initProducerIdApi, askId, to)
  assert.equal(second.requests.at(-1)?.api, "InitProducerId")
  await assert.rejects(cluster.request(initProducerIdApi, askId, { ...to, partition: 3 }), {
    kind: "not-found",
    message: 'partition 3 of topic "a" is out of range: the topic has 1 partition (0)',
  })
})

test("a leader that dies is left for the one that metadata names next", async (t) => {
  const scene = new Scene(t)
  const [first, second] = [await scene.broker(), await scene.broker()]
  scene.topics = [topicEntry("a", idA, [{ leader: 1, epoch: 1 }])]
  scene.more = ({ api }) => (api === "InitProducerId" ? { message: { producerId: 1n, producerEpoch: 0 } } : undefined)
  const cluster = await scene.connected()
  const to = { kind: "leader", topic: "a", partition: 0 } as const
  await cluster.request(initProducerIdApi, askId, to)
  await second.close()
  await until("the loss", () => scene.changes.length > 0)
  const asked = cluster.request(initProducerIdApi, askId, to)
  scene.topics = [topicEntry("a", idA, [{ leader: 0, epoch: 2 }])]
  await asked
  assert.equal(first.requests.at(-1)?.api, "InitProducerId")
})

test("a partition without a leader is waited for, within the time of the request", async (t) => {
  const scene = new Scene(t)
  await scene.broker()
  scene.topics = [topicEntry("a", idA, [{ leader: -1, epoch: 1 }])]
  scene.more = ({ api }) => (api === "InitProducerId" ? { message: { producerId: 1n, producerEpoch: 0 } } : undefined)
  const cluster = await scene.connected()
  const to = { kind: "leader", topic: "a", partition: 0 } as const
  await assert.rejects(cluster.request(initProducerIdApi, askId, to, { timeoutMs: 150 }), (error: unknown) => {
    assert.ok(error instanceof MillraceError)
    assert.ok(error.kind === "not-leader" || error.kind === "connection")
    assert.ok(error.retryable && error.outcome === "rejected")
    return true
  })
  const asked = cluster.request(initProducerIdApi, askId, to)
  scene.topics = [topicEntry("a", idA, [{ leader: 0, epoch: 2 }])]
  await asked
})

test("a coordinator is found once for all, and again when it is in doubt", async (t) => {
  const scene = new Scene(t)
  await scene.broker()
  let loading = 2
  scene.more = ({ api, body }) => {
    if (api !== "FindCoordinator") return undefined
    const [key] = body.coordinatorKeys as string[]
    const errorCode = loading-- > 0 ? 15 : 0
    return {
      message: { coordinators: [{ key, nodeId: 0, host: "127.0.0.1", port: 1, errorCode, errorMessage: null }] },
    }
  }
  const cluster = await scene.connected()
  assert.deepEqual(await Promise.all([cluster.coordinator("g"), cluster.coordinator("g")]), [0, 0])
  assert.equal(scene.count("FindCoordinator"), 3)
  await cluster.coordinator("g")
  assert.equal(scene.count("FindCoordinator"), 3)
  cluster.invalidateCoordinator("g")
  await cluster.coordinator("g")
  assert.equal(scene.count("FindCoordinator"), 4)
})

test("loss and return are told once each, and requests of the meantime wait for the return", async (t) => {
  const scene = new Scene(t)
  const server = await scene.broker()
  scene.more = ({ api }) => (api === "InitProducerId" ? { message: { producerId: 1n, producerEpoch: 0 } } : undefined)
  const cluster = await scene.connected()
  await server.close()
  await until("the loss", () => scene.changes.length > 0)
  const waiting = Array.from({ length: 20 }, () => cluster.request(initProducerIdApi, askId, { kind: "any" }))
  scene.brokers.length = 0
  await scene.broker(server.port)
  await Promise.all(waiting)
  assert.deepEqual(
    scene.changes.map(({ state, server: name }) => [state, name]),
    [
      ["lost", `127.0.0.1:${server.port}`],
      ["restored", `127.0.0.1:${server.port}`],
    ],
  )
})

test("a broker that is gone for a minute sees at most 20 attempts, whatever the load", async (t) => {
  const clock = new VirtualClock()
  const scene = new Scene(t)
  const server = await scene.broker()
  const cluster = await scene.connected({ clock })
  await clock.advance(10_000)
  // It takes connections and says nothing good: every attempt is seen.
  let attempts = 0
  scene.more = ({ api }) => {
    if (api !== "ApiVersions") return undefined
    attempts++
    return "cut"
  }
  server.cutAll()
  await until("the loss", () => scene.changes.length > 0)
  const failures: Promise<unknown>[] = []
  for (let at = 0; at < 60_000; at += 250) {
    for (let i = 0; i < 5; i++) {
      failures.push(
        cluster.request(metadataApi, { topics: [] }, { kind: "any" }, { timeoutMs: 2_000 }).catch((error) => error),
      )
    }
    await clock.advance(250)
    await new Promise((resolve) => setTimeout(resolve, 4))
  }
  assert.ok(attempts <= 20, `${attempts} attempts`)
  assert.ok(attempts >= 5, `${attempts} attempts: it gave up`)
  await cluster.close()
  for (const failure of await Promise.all(failures)) assert.ok(failure instanceof MillraceError)
  assert.deepEqual(
    scene.changes.map(({ state }) => state),
    ["lost"],
  )
})

test("when every node that is known is gone, the addresses of the URL are asked again", async (t) => {
  const scene = new Scene(t)
  const [first, second] = [await scene.broker(), await scene.broker()]
  scene.listed = [1]
  scene.more = ({ api }) => (api === "InitProducerId" ? { message: { producerId: 1n, producerEpoch: 0 } } : undefined)
  const cluster = await scene.connected()
  await cluster.request(initProducerIdApi, askId, { kind: "node", id: 1 })
  await second.close()
  first.cutAll()
  await until("the loss", () => scene.changes.length > 0)
  scene.listed = [0]
  await cluster.request(initProducerIdApi, askId, { kind: "any" })
  assert.equal(first.requests.at(-1)?.api, "InitProducerId")
})

test("with several addresses the first that answers is used; when none does, all are named", async (t) => {
  const scene = new Scene(t)
  const server = await scene.broker()
  const dead = await ScriptedBroker.open()
  await dead.close()
  const host = "127.0.0.1"
  await scene.connected({
    bootstrap: [
      { host, port: dead.port },
      { host, port: server.port },
    ],
  })
  const both = scene.connected({
    bootstrap: [
      { host, port: dead.port },
      { host, port: dead.port + 1 },
    ],
  })
  await assert.rejects(both, (error: unknown) => {
    assert.ok(error instanceof MillraceError)
    assert.equal(error.kind, "connection")
    assert.ok(error.retryable)
    assert.ok(error.message.includes(`${host}:${dead.port}`), error.message)
    assert.ok(error.message.includes(`${host}:${dead.port + 1}`), error.message)
    return true
  })
})

test("an own connection is apart from the shared one, and ends with the cluster", async (t) => {
  const scene = new Scene(t)
  const server = await scene.broker()
  const cluster = await scene.connected()
  const before = server.connections
  const own = await cluster.open(0)
  assert.equal(server.connections, before + 1)
  await own.request(metadataApi, { topics: [] }, { readOnly: true })
  await cluster.close()
  assert.ok(own.closed)
  await assert.rejects(cluster.open(0), { kind: "closed" })
})

test("close settles what is under way, what waits, and what comes later", async (t) => {
  const scene = new Scene(t)
  await scene.broker()
  scene.topics = [topicEntry("a", idA, [{ leader: -1, epoch: 1 }])]
  const cluster = await scene.connected()
  await cluster.topic("a")
  scene.more = () => "silence"
  const settled = Promise.allSettled([
    cluster.request(initProducerIdApi, askId, { kind: "any" }),
    cluster.request(initProducerIdApi, askId, { kind: "leader", topic: "a", partition: 0 }),
    cluster.request(offsetFetchApi, {}, { kind: "coordinator", group: "g" }),
    cluster.topic("b"),
  ])
  await until("the requests", () => scene.count("InitProducerId") === 1)
  await cluster.close()
  for (const outcome of await settled) {
    assert.equal(outcome.status, "rejected")
    assert.equal(outcome.reason.kind, "closed", String(outcome.reason))
  }
  await assert.rejects(cluster.request(initProducerIdApi, askId, { kind: "any" }), {
    kind: "closed",
    outcome: "rejected",
  })
  await cluster.close()
})
