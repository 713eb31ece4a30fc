import assert from "node:assert/strict"
import { createServer } from "node:net"
import { type TestContext, test } from "node:test"
import { type ErrorKind, MillraceError, type Outcome } from "@millrace/contract"
import { systemClock, VirtualClock } from "@millrace/runtime"
import { describeConfigsApi, initProducerIdApi, metadataApi } from "../protocol/api.ts"
import { type ConnectionOptions, WireConnection } from "./connection.ts"
import { type BrokerScript, framed, metadata, ScriptedBroker } from "./scripted-broker.test-support.ts"

async function broker(t: TestContext, script?: BrokerScript): Promise<ScriptedBroker> {
  const opened = await ScriptedBroker.open(script)
  t.after(() => opened.close())
  return opened
}

function options(port: number, more: Partial<ConnectionOptions> = {}): ConnectionOptions {
  return {
    host: "127.0.0.1",
    port,
    nodeId: -1,
    clientId: "tester",
    clock: systemClock,
    connectTimeoutMs: 5_000,
    requestTimeoutMs: 5_000,
    ...more,
  }
}

async function open(t: TestContext, port: number, more: Partial<ConnectionOptions> = {}): Promise<WireConnection> {
  const connection = await WireConnection.open(options(port, more))
  t.after(() => connection.close())
  return connection
}

async function refused(
  promise: Promise<unknown>,
  expected: {
    readonly kind: ErrorKind
    readonly outcome: Outcome
    readonly says?: string
    readonly retryable?: boolean
  },
): Promise<void> {
  const error = await promise.then(
    () => assert.fail("it should have been refused"),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof MillraceError, String(error))
  assert.equal(error.kind, expected.kind, error.message)
  assert.equal(error.outcome, expected.outcome, error.message)
  if (expected.retryable !== undefined) assert.equal(error.retryable, expected.retryable)
  if (expected.says !== undefined) assert.ok(error.message.includes(expected.says), error.message)
}

/** A server that sends these bytes to everybody at once, or only when it was sent something. */
async function stranger(t: TestContext, bytes: string | Uint8Array, when: "at once" | "asked"): Promise<number> {
  const server = createServer((socket) => {
    socket.on("error", () => {})
    if (when === "at once") socket.write(bytes)
    else socket.once("data", () => socket.write(bytes))
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  t.after(() => server.close())
  const address = server.address()
  assert.ok(address !== null && typeof address === "object")
  return address.port
}

const looking = { readOnly: true }
const noTopics = { topics: [] }

test("the broker is asked for its versions first, by the name and the version of this software", async (t) => {
  const server = await broker(t)
  const connection = await open(t, server.port)
  assert.equal(server.requests[0]?.api, "ApiVersions")
  assert.equal(server.requests[0]?.version, 4)
  assert.equal(server.requests[0]?.clientId, "tester")
  assert.equal(server.requests[0]?.body.clientSoftwareName, "millrace")
  assert.equal(connection.version(metadataApi), metadataApi.max)
})

test("a broker that does not know that version answers in version 0 and is asked again in its newest", async (t) => {
  const server = await broker(t, (request) => {
    if (request.api !== "ApiVersions" || request.version <= 2) return undefined
    const apiKeys = [{ apiKey: 18, minVersion: 0, maxVersion: 2 }]
    return { message: { errorCode: 35, apiKeys }, version: 0 }
  })
  server.offer = { Metadata: [0, 7] }
  const connection = await open(t, server.port)
  assert.deepEqual(
    server.requests.map(({ version }) => version),
    [4, 2],
  )
  assert.equal(connection.version(metadataApi), 7)
})

test("a broker before 2.4 tells no versions with that error, and is asked again in version 0", async (t) => {
  const server = await broker(t, (request) =>
    request.version > 0 ? { message: { errorCode: 35, apiKeys: [] }, version: 0 } : undefined,
  )
  await open(t, server.port)
  assert.deepEqual(
    server.requests.map(({ version }) => version),
    [4, 0],
  )
})

test("a broker that is too old, or too new, is told which request that is and what is needed", async (t) => {
  const server = await broker(t)
  server.offer = { Produce: [0, 2] }
  await refused(WireConnection.open(options(server.port)), {
    kind: "unsupported",
    outcome: "rejected",
    says: "too old for the request Produce: it offers versions 0 to 2",
  })
  server.offer = { Fetch: null }
  await refused(WireConnection.open(options(server.port)), { kind: "unsupported", outcome: "rejected", says: "Fetch" })
  server.offer = { Metadata: [40, 41] }
  await refused(WireConnection.open(options(server.port)), {
    kind: "unsupported",
    outcome: "rejected",
    says: "too new",
  })
})

test("finalized features are kept with the connection", async (t) => {
  const server = await broker(t)
  server.features = [{ name: "group.version", level: 1 }]
  const connection = await open(t, server.port)
  assert.equal(connection.versions.feature("group.version"), 1)
  assert.equal(connection.versions.feature("transaction.version"), 0)
})

test("requests of one turn share a write, and answers come to those who asked", async (t) => {
  const server = await broker(t, (request) =>
    request.api === "InitProducerId"
      ? { message: { producerId: BigInt(server.requests.length), producerEpoch: 0 } }
      : undefined,
  )
  const connection = await open(t, server.port)
  const ask = { transactionalId: null, transactionTimeoutMs: 1 }
  const answers = await Promise.all(Array.from({ length: 200 }, () => connection.request(initProducerIdApi, ask)))
  assert.deepEqual(
    answers.map(({ producerId }) => producerId),
    Array.from({ length: 200 }, (_, index) => BigInt(index + 2)),
  )
})

test("an answer to another request than the oldest is a protocol error, and ends the connection", async (t) => {
  const server = await broker(t, (request) =>
    request.api === "Metadata" ? { message: metadata([]), correlationId: request.correlationId + 1 } : undefined,
  )
  const ended = Promise.withResolvers<MillraceError | undefined>()
  const connection = await open(t, server.port, { onEnd: ended.resolve })
  await refused(connection.request(metadataApi, noTopics, looking), {
    kind: "connection",
    outcome: "rejected",
    retryable: true,
  })
  assert.equal((await ended.promise)?.kind, "protocol")
  assert.ok(connection.closed)
})

test("a cut connection: what was written is unknown, what only looks may be asked again", async (t) => {
  const server = await broker(t, (request) => (request.api === "ApiVersions" ? undefined : "cut"))
  const ended = Promise.withResolvers<MillraceError | undefined>()
  const connection = await open(t, server.port, { onEnd: ended.resolve })
  const asked = connection.request(initProducerIdApi, { transactionalId: null, transactionTimeoutMs: 1 })
  const looked = connection.request(metadataApi, noTopics, looking)
  await refused(asked, { kind: "connection", outcome: "unknown", retryable: true })
  await refused(looked, { kind: "connection", outcome: "rejected", retryable: true })
  assert.equal((await ended.promise)?.kind, "connection")
  const late = connection.request(metadataApi, noTopics)
  await refused(late, { kind: "connection", outcome: "rejected", retryable: true })
})

test("a request that was not written yet when the connection ends was certainly not done", async (t) => {
  const server = await broker(t)
  const connection = await open(t, server.port)
  const asked = connection.request(initProducerIdApi, { transactionalId: null, transactionTimeoutMs: 1 })
  connection.close()
  await refused(asked, { kind: "closed", outcome: "rejected" })
})

test("silence: the request times out, and then the connection counts as dead", async (t) => {
  const clock = new VirtualClock()
  const server = await broker(t, (request) => (request.api === "ApiVersions" ? undefined : "silence"))
  const ended = Promise.withResolvers<MillraceError | undefined>()
  const connection = await open(t, server.port, { clock, onEnd: ended.resolve })
  const changing = connection.request(
    initProducerIdApi,
    { transactionalId: null, transactionTimeoutMs: 1 },
    { timeoutMs: 1_000 },
  )
  const looked = connection.request(metadataApi, noTopics, { timeoutMs: 4_000, readOnly: true })
  const told = refused(changing, { kind: "timeout", outcome: "unknown", says: "InitProducerId within 1000 ms" })
  const other = refused(looked, { kind: "connection", outcome: "rejected", retryable: true })
  await Promise.resolve()
  await clock.advance(1_000)
  await told
  assert.match(String((await ended.promise)?.message), /silent for 1000 ms/)
  await other
})

test("a request that waits behind a slow one times out alone", async (t) => {
  const clock = new VirtualClock()
  const slow = Promise.withResolvers<undefined>()
  const server = await broker(t, (request) => (request.api === "ApiVersions" ? undefined : slow.promise))
  const connection = await open(t, server.port, { clock })
  const first = connection.request(metadataApi, noTopics, { timeoutMs: 10_000, readOnly: true })
  const second = connection.request(metadataApi, noTopics, { timeoutMs: 100, readOnly: true })
  const told = refused(second, { kind: "timeout", outcome: "rejected" })
  await Promise.resolve()
  await clock.advance(100)
  await told
  slow.resolve(undefined)
  assert.equal((await first).clusterId, "scripted")
  assert.equal((await connection.request(metadataApi, noTopics, looking)).clusterId, "scripted")
  assert.ok(!connection.closed)
})

test("an answer that is cut at any byte, or goes on too long, is a typed failure, and the process lives", async (t) => {
  let cutAt = 0
  const whole = framed(
    { api: "Metadata", version: 12, correlationId: 1 },
    { message: metadata([{ nodeId: 1, port: 9 }]) },
  )
  const server = await broker(t, (request) => {
    if (request.api === "ApiVersions") return undefined
    const content = whole.subarray(4, cutAt)
    const bytes = Buffer.concat([Buffer.alloc(4), content])
    bytes.writeInt32BE(content.length)
    return { bytes }
  })
  server.offer = { Metadata: [0, 12] }
  for (cutAt = 8; cutAt < whole.length; cutAt++) {
    const connection = await open(t, server.port)
    await refused(connection.request(metadataApi, noTopics, looking), { kind: "protocol", outcome: "rejected" })
    assert.ok(connection.closed)
  }
})

for (const [what, bytes] of [
  ["a negative length", Uint8Array.of(0xff, 0xff, 0xff, 0xf0)],
  ["a huge length", Uint8Array.of(0x7f, 0xff, 0xff, 0xff)],
  ["garbage", Buffer.from("\x00\x00\x00\x09garbage!!", "latin1")],
] as const) {
  test(`${what} instead of an answer is a typed failure`, async (t) => {
    const server = await broker(t, (request) => (request.api === "ApiVersions" ? undefined : { bytes }))
    const connection = await open(t, server.port)
    const asked = connection.request(initProducerIdApi, { transactionalId: null, transactionTimeoutMs: 1 })
    await refused(asked, { kind: "connection", outcome: "unknown", retryable: true })
    assert.ok(connection.closed)
  })
  test(`${what} at the first request is a typed failure`, async (t) => {
    const port = await stranger(t, bytes, "asked")
    await refused(WireConnection.open(options(port)), { kind: "protocol", outcome: "rejected", retryable: false })
  })
}

for (const [what, bytes, when, says] of [
  ["NATS", 'INFO {"server_id":"N"}\r\n', "at once", "speaks NATS"],
  ["a web server", "HTTP/1.1 400 Bad Request\r\n\r\n", "asked", "speaks HTTP"],
  ["TLS", Uint8Array.of(0x15, 3, 3, 0, 2, 2, 70), "asked", "speaks TLS"],
] as const) {
  test(`${what} at the port is told by name`, async (t) => {
    const port = await stranger(t, bytes, when)
    await refused(WireConnection.open(options(port)), { kind: "protocol", outcome: "rejected", retryable: false, says })
  })
}

test("a server that hangs up at the first request, and one that says nothing, are told what may be wrong", async (t) => {
  const rude = await broker(t, () => "cut")
  await refused(WireConnection.open(options(rude.port)), {
    kind: "connection",
    outcome: "rejected",
    says: "TLS or SASL",
  })
  const mute = await broker(t, () => "silence")
  const attempt = WireConnection.open(options(mute.port, { connectTimeoutMs: 200 }))
  await refused(attempt, { kind: "connection", outcome: "rejected", says: "did not answer within 200 ms" })
})

test("where nobody listens the attempt fails with host and port", async () => {
  const server = await ScriptedBroker.open()
  await server.close()
  await refused(WireConnection.open(options(server.port)), {
    kind: "connection",
    outcome: "rejected",
    retryable: true,
    says: `127.0.0.1:${server.port}`,
  })
})

test("an attempt that is given up ends at once", async (t) => {
  const mute = await broker(t, () => "silence")
  const abort = new AbortController()
  const attempt = WireConnection.open(options(mute.port, { signal: abort.signal }))
  const told = refused(attempt, { kind: "closed", outcome: "rejected" })
  abort.abort()
  await told
})

test("a version that the broker lacks is refused before anything is sent", async (t) => {
  const server = await broker(t)
  server.offer = { DescribeConfigs: [1, 2] }
  const connection = await open(t, server.port)
  await refused(connection.request(describeConfigsApi, { resources: [] }, { minVersion: 4 }), {
    kind: "unsupported",
    outcome: "rejected",
  })
  assert.equal(server.requests.length, 1)
})
