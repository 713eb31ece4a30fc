import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import { MillraceError, type SessionOptions } from "@millrace/contract"
import { kafkaDriver } from "./driver.ts"
import type { Struct } from "./protocol/codec.ts"
import { metadata, type Received, type Reply, ScriptedBroker } from "./wire/scripted-broker.test-support.ts"

function connect(port: number, options: Partial<SessionOptions> = {}): ReturnType<typeof kafkaDriver.connect> {
  const target = { scheme: "kafka", hosts: [{ host: "127.0.0.1", port }], path: "", options: {} }
  return kafkaDriver.connect(target, { timeoutMs: 10_000, ...options })
}

async function broker(
  t: TestContext,
  more: (request: Received, broker: ScriptedBroker) => Reply | undefined = () => undefined,
): Promise<ScriptedBroker> {
  const opened: ScriptedBroker = await ScriptedBroker.open((request) => {
    const own = more(request, opened)
    if (own !== undefined || request.api !== "DescribeConfigs") return own
    return { message: configs([{ name: "message.max.bytes", value: "2000000" }]) }
  })
  t.after(() => opened.close())
  return opened
}

function configs(values: readonly { readonly name: string; readonly value: string }[]): Struct {
  const entries = values.map((entry) => ({
    ...entry,
    readOnly: false,
    configSource: 5,
    isSensitive: false,
    synonyms: [],
    configType: 0,
    documentation: null,
  }))
  return { results: [{ errorCode: 0, errorMessage: null, resourceType: 4, resourceName: "0", configs: entries }] }
}

async function failure(promise: Promise<unknown>): Promise<MillraceError> {
  const error = await promise.then(
    () => assert.fail("it should have failed"),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof MillraceError, String(error))
  return error
}

test("the manifest of a session has the release, by the finalized features, and the broker's limit", async (t) => {
  const server = await broker(t)
  server.features = [{ name: "metadata.version", level: 29 }]
  const session = await connect(server.port)
  assert.equal(session.manifest.backend, "Apache Kafka 4.2")
  assert.ok(session.manifest.limits.payloadBytes > 1_990_000 && session.manifest.limits.payloadBytes < 2_000_000)
  assert.ok(Object.isFrozen(session.manifest.limits))
  await session.close()
  await session.close()
})

test("a broker that does not tell its limit or its release has the usual ones", async (t) => {
  const server = await broker(t, ({ api }) => (api === "DescribeConfigs" ? { message: configs([]) } : undefined))
  const session = await connect(server.port)
  assert.equal(session.manifest.backend, "Apache Kafka")
  assert.deepEqual(session.manifest.limits, kafkaDriver.manifest.limits)
  await session.close()
})

test("an address that the cluster gives for its broker and that leads nowhere is told, with where that is set", async (t) => {
  const dead = await ScriptedBroker.open()
  await dead.close()
  const server = await broker(t, ({ api }) =>
    api === "Metadata" ? { message: metadata([{ nodeId: 0, port: dead.port }]) } : undefined,
  )
  const error = await failure(connect(server.port))
  assert.deepEqual([error.kind, error.retryable, error.outcome], ["connection", true, "rejected"])
  assert.match(error.message, new RegExp(`127\\.0\\.0\\.1:${dead.port}.*advertised\\.listeners`))
})

test("connecting ends at its time limit, and when it is given up", async (t) => {
  const mute = await broker(t, () => "silence")
  const late = await failure(connect(mute.port, { timeoutMs: 150 }))
  assert.equal(late.outcome, "rejected")
  assert.ok(late.retryable)
  const abort = new AbortController()
  const given = failure(connect(mute.port, { signal: abort.signal }))
  abort.abort()
  assert.equal((await given).kind, "cancelled")
  assert.equal((await failure(connect(mute.port, { signal: AbortSignal.abort() }))).kind, "cancelled")
})
