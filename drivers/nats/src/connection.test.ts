import assert from "node:assert/strict"
import type { Socket } from "node:net"
import { test } from "node:test"
import type { ConnectionChange, ConnectTarget, MillraceError } from "@millrace/contract"
import { systemClock, systemRandom } from "@millrace/runtime"
import { Connection } from "./connection.ts"
import { natsDriver } from "./driver.ts"
import { impostor, respond, speak } from "./impostor.test-support.ts"
import { Shop } from "./reader-fixture.test-support.ts"
import { sealed } from "./sealed-batch.test-support.ts"

const timeout = 60_000

function targetOf(port: number, more: Partial<ConnectTarget> = {}): ConnectTarget {
  return { scheme: "nats", hosts: [{ host: "127.0.0.1", port }], path: "", options: {}, ...more }
}

/** Answers the JetStream API of an account. */
function jetstream(line: string, socket: Socket): void {
  const [, reply] = /^PUB \$JS\.API\.INFO (\S+) 0$/.exec(line) ?? []
  if (reply !== undefined) respond(socket, reply, "{}")
}

async function failure(connecting: Promise<unknown>): Promise<MillraceError> {
  return connecting.then(
    () => assert.fail("the connection was made"),
    (error) => error as MillraceError,
  )
}

test("where nobody listens, connecting fails at once and names the place", { timeout }, async (t) => {
  const port = await impostor(t, (socket) => socket.destroy())
  const dead = await impostor(t, () => {})
  const error = await failure(natsDriver.connect(targetOf(port), { timeoutMs: 5_000 }))
  assert.equal(error.kind, "connection")
  assert.equal(error.outcome, "rejected")
  assert.ok(error.message.includes(`127.0.0.1:${port}`), error.message)
  const hosts = [{ host: "::1", port }]
  const six = await failure(natsDriver.connect(targetOf(port, { hosts }), { timeoutMs: 5_000 }))
  assert.ok(six.message.includes(`[::1]:${port}`), six.message)
  const silent = await failure(natsDriver.connect(targetOf(dead), { timeoutMs: 300 }))
  assert.ok(["timeout", "connection"].includes(silent.kind), silent.message)
  assert.equal(silent.outcome, "rejected")
})

test("what is no NATS server is a protocol error", { timeout }, async (t) => {
  const replies = ["HTTP/1.1 400 Bad Request\r\n\r\n", "-ERR wrong number of arguments\r\n", "INFO {not json\r\n"]
  for (const reply of replies) {
    const port = await impostor(t, (socket) => socket.write(reply))
    const error = await failure(natsDriver.connect(targetOf(port), { timeoutMs: 5_000 }))
    assert.equal(error.kind, "protocol", `${reply}: ${error.message}`)
    assert.equal(error.outcome, "rejected")
  }
})

test("a server that is too old, or has no JetStream, is unsupported, and says what is needed", {
  timeout,
}, async (t) => {
  const old = await impostor(t, (socket) => speak(socket, jetstream, { version: "2.9.25" }))
  const tooOld = await failure(natsDriver.connect(targetOf(old), { timeoutMs: 5_000 }))
  assert.equal(tooOld.kind, "unsupported")
  assert.match(tooOld.message, /2\.9\.25.*2\.10/)
  const plain = await impostor(t, (socket) =>
    speak(socket, (line) => {
      const [, reply] = /^PUB \$JS\.API\.INFO (\S+) 0$/.exec(line) ?? []
      if (reply !== undefined) socket.write(`HMSG ${reply} 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n`)
    }),
  )
  const none = await failure(natsDriver.connect(targetOf(plain), { timeoutMs: 5_000 }))
  assert.equal(none.kind, "unsupported", none.message)
  assert.match(none.message, /JetStream/)
})

test("a server that wants TLS and cannot do it fails as a connection, and is not asked again", {
  timeout,
}, async (t) => {
  const port = await impostor(t, (socket) => speak(socket, () => {}, { tls_required: true }))
  const error = await failure(natsDriver.connect(targetOf(port), { timeoutMs: 1_000 }))
  assert.ok(["connection", "timeout"].includes(error.kind), `${error.kind}: ${error.message}`)
  assert.equal(error.outcome, "rejected")
})

test("connecting can be aborted, also while the server is silent", { timeout }, async (t) => {
  const port = await impostor(t, () => {})
  const controller = new AbortController()
  const connecting = failure(natsDriver.connect(targetOf(port), { timeoutMs: 30_000, signal: controller.signal }))
  controller.abort()
  assert.equal((await connecting).kind, "cancelled")
})

test("garbage on a connection that stood is given up: what was asked fails, the session comes back", {
  timeout,
}, async (t) => {
  const changes: ConnectionChange[] = []
  const { promise: restored, resolve } = Promise.withResolvers<void>()
  let broken = false
  const port = await impostor(t, (socket) =>
    speak(socket, (line) => {
      jetstream(line, socket)
      if (!line.startsWith("PUB $JS.API.STREAM.INFO.x") || broken) return
      broken = true
      socket.write("\u0000\u0001garbage that is no protocol\r\n")
    }),
  )
  const connection = await Connection.open(
    targetOf(port),
    {
      timeoutMs: 5_000,
      onConnection: (change) => {
        changes.push(change)
        if (change.state === "restored") resolve()
      },
    },
    { clock: systemClock, random: systemRandom },
  )
  t.after(() => connection.close())
  const read = await failure(connection.api("STREAM.INFO.x", undefined, { idempotent: true }))
  assert.equal(read.kind, "connection")
  assert.equal(read.outcome, "rejected")
  assert.equal(read.retryable, true)
  assert.match(String((read.cause as Error).message), /not the NATS protocol/)
  await restored
  assert.deepEqual(
    changes.map(({ state }) => state),
    ["lost", "restored"],
  )
})

test("answers that are no JSON, or an error without a code, are typed", { timeout }, async (t) => {
  const answers = ["", "[", "null", "7", '{"error":{}}', '{"error":{"code":400,"err_code":10025,"description":"bad"}}']
  const port = await impostor(t, (socket) =>
    speak(socket, (line) => {
      jetstream(line, socket)
      const [, index, reply] = /^PUB \$JS\.API\.ASK\.(\d) (\S+) 0$/.exec(line) ?? []
      if (reply !== undefined) respond(socket, reply, answers[Number(index)] as string)
    }),
  )
  const connection = await Connection.open(
    targetOf(port),
    { timeoutMs: 5_000 },
    { clock: systemClock, random: systemRandom },
  )
  t.after(() => connection.close())
  const kinds: string[] = []
  for (const index of answers.keys()) kinds.push((await failure(connection.api(`ASK.${index}`))).kind)
  assert.deepEqual(kinds, ["protocol", "protocol", "protocol", "protocol", "storage", "invalid"])
})

test("silence is a time-out: unknown for what changes something, rejected for what reads", { timeout }, async (t) => {
  const port = await impostor(t, (socket) => speak(socket, jetstream))
  const target = targetOf(port, { options: { requestTimeout: 200 } })
  const connection = await Connection.open(target, { timeoutMs: 5_000 }, { clock: systemClock, random: systemRandom })
  t.after(() => connection.close())
  const [write, read] = await Promise.all([
    failure(connection.api("STREAM.DELETE.x")),
    failure(connection.api("STREAM.INFO.x", undefined, { idempotent: true })),
  ])
  assert.deepEqual([write.kind, write.outcome], ["timeout", "unknown"])
  assert.deepEqual([read.kind, read.outcome], ["timeout", "rejected"])
})

test("a wrong password is an authentication error, the right one works", { timeout }, async (t) => {
  const shop = await Shop.open(t, { user: "ann", password: "s p@ce" })
  if (shop === undefined) return
  const [port = 0] = shop.server.ports
  for (const login of [{}, { username: "ann", password: "wrong" }]) {
    const error = await failure(natsDriver.connect(targetOf(port, login), { timeoutMs: 5_000 }))
    assert.equal(error.kind, "authentication", error.message)
    assert.equal(error.retryable, false)
  }
  const session = await natsDriver.connect(targetOf(port, { username: "ann", password: "s p@ce" }), {
    timeoutMs: 5_000,
  })
  await session.catalog.listStreams()
  await session.close()
})

test("what the user may not publish is a permission error, at once and rejected", { timeout }, async (t) => {
  const settings = {
    authorization: {
      users: [{ user: "ann", password: "pw", permissions: { publish: ["$JS.API.>"], subscribe: [">"] } }],
    },
  }
  const shop = await Shop.open(t, { user: "ann", password: "pw", settings })
  if (shop === undefined) return
  const [port = 0] = shop.server.ports
  const session = await natsDriver.connect(targetOf(port, { username: "ann", password: "pw" }), { timeoutMs: 5_000 })
  t.after(() => session.close())
  const topic = await shop.topic(session, { stream: "s", topic: "t" }, 2)
  for (const confirm of ["offsets", "stored"] as const) {
    for (const [partition, texts] of [["a"], ["a", "b"]].entries()) {
      const batch = sealed(session, topic, texts, partition)
      const error = await failure(session.log.append(batch, { confirm }))
      assert.deepEqual([error.kind, error.outcome], ["permission", "rejected"], error.message)
    }
  }
})

test("A-25: an outage is met with few attempts, requests fail at once, and the session comes back", {
  timeout,
}, async (t) => {
  const shop = await Shop.open(t, { proxied: true })
  if (shop === undefined) return
  const session = await shop.session()
  const topic = await shop.topic(session, { stream: "s", topic: "t" })
  const [proxy] = shop.server.proxies
  if (proxy === undefined) throw new Error("the server has a proxy")
  await shop.append(session, topic, { texts: ["before"] })
  await shop.server.kill()
  await assert.rejects(shop.append(session, topic, { texts: ["lost"] }))
  const before = proxy.accepted
  const startedMs = performance.now()
  let refusals = 0
  while (performance.now() - startedMs < 3_000) {
    const error = await failure(shop.append(session, topic, { texts: ["refused"] }))
    assert.deepEqual([error.kind, error.outcome, error.retryable], ["connection", "rejected", true], error.message)
    refusals++
    await new Promise((resolve) => setImmediate(resolve))
  }
  assert.ok(refusals > 100, `only ${refusals} appends were answered in 3 s`)
  assert.ok(proxy.accepted - before <= 8, `${proxy.accepted - before} attempts in 3 s`)
  await shop.server.start()
  const deadlineMs = performance.now() + 15_000
  for (;;) {
    try {
      await shop.append(session, topic, { texts: ["after"] })
      break
    } catch (error) {
      if (performance.now() > deadlineMs) throw error
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
})
