import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { join } from "node:path"
import type { TestContext } from "node:test"
import { test } from "node:test"
import { exchange } from "./exchange.ts"
import { startNats } from "./nats.ts"
import { probeNats } from "./nats-probe.ts"
import { serverNeed } from "./need.ts"
import { isFree } from "./ports.ts"
import { isAlive } from "./process-state.test-support.ts"

const timeout = 120_000

async function canRun(t: TestContext): Promise<boolean> {
  const reason = await serverNeed("nats", { to: "start" })
  if (reason !== undefined) t.skip(`needs nats: ${reason}`)
  return reason === undefined
}

/** Asks JetStream by the text protocol. */
async function jetStream(port: number, subject: string, body: string): Promise<Record<string, unknown>> {
  let asked = false
  const answer = await exchange({
    port,
    read: (bytes, socket) => {
      const text = bytes.toString()
      if (!asked && text.startsWith("INFO ")) {
        asked = true
        const size = Buffer.byteLength(body)
        socket.write(`CONNECT {"verbose":false}\r\nSUB _INBOX.x 1\r\nPUB ${subject} _INBOX.x ${size}\r\n${body}\r\n`)
      }
      const found = /MSG _INBOX\.x 1 (\d+)\r\n([\s\S]*)\r\n$/.exec(text)
      return found === null ? undefined : Buffer.from(found[2] ?? "")
    },
  })
  return JSON.parse(answer.toString()) as Record<string, unknown>
}

async function isStored(port: number, subject: string): Promise<boolean> {
  try {
    return (await jetStream(port, subject, "hello")).seq !== undefined
  } catch {
    return false
  }
}

test("a server keeps its data and port over kill -9 and a restart, and leaves nothing when stopped", {
  timeout,
}, async (t) => {
  if (!(await canRun(t))) return
  const server = await startNats()
  t.after(() => server.stop())
  const [port = 0] = server.ports
  assert.equal(server.url, `nats://127.0.0.1:${port}`)
  assert.match(server.version, /^2\.1\d/)
  await jetStream(
    port,
    "$JS.API.STREAM.CREATE.kept",
    JSON.stringify({ name: "kept", subjects: ["kept"], storage: "file" }),
  )
  assert.equal((await jetStream(port, "kept", "hello")).seq, 1)
  const pid = server.pid() ?? 0
  await server.kill()
  assert.equal(isAlive(pid), false)
  assert.deepEqual(server.running, [])
  await assert.rejects(probeNats(port, {}), /ECONNREFUSED/)
  await server.start()
  assert.equal((await jetStream(port, "kept", "again")).seq, 2)
  assert.match(server.logs(), /Server is ready[\s\S]*Server is ready/)
  const last = server.pid() ?? 0
  await server.stop()
  assert.equal(isAlive(last), false)
  assert.equal(existsSync(server.directory), false)
  assert.equal(await isFree(port), true)
  await server.stop()
  await assert.rejects(server.start(), /was stopped/)
})

test("a halted server answers nothing until it goes on, and can be killed", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  await using server = await startNats()
  const [port = 0] = server.ports
  server.pause()
  await assert.rejects(probeNats(port, {}), /did not answer/)
  server.resume()
  await probeNats(port, {})
  server.pause()
  await server.kill()
  assert.deepEqual(server.running, [])
})

test("three servers are one cluster, of which one can go and come", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  await using server = await startNats({ servers: 3 })
  const [first = 0] = server.ports
  assert.equal(server.urls.length, 3)
  const stream = JSON.stringify({ name: "three", subjects: ["three"], num_replicas: 3 })
  assert.equal((await jetStream(first, "$JS.API.STREAM.CREATE.three", stream)).error, undefined)
  await server.kill("SIGKILL", 1)
  assert.deepEqual(server.running, [0, 2])
  assert.equal(server.pid(1), undefined)
  // The one that is gone may have led: the two that are left elect another, which takes them some seconds.
  while (!(await isStored(first, "three"))) assert.deepEqual(server.running, [0, 2])
  await server.start(1)
  assert.deepEqual(server.running, [0, 1, 2])
  assert.throws(() => server.pause(3), /there is no process 3: this nats server has 0 to 2/)
})

test("a password is asked for, and settings are the server's", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  await using server = await startNats({ user: "u", password: "p/w", settings: { max_payload: 2048 } })
  const [port = 0] = server.ports
  assert.equal(server.url, `nats://u:p%2Fw@127.0.0.1:${port}`)
  await assert.rejects(probeNats(port, {}), /Authorization Violation/)
  const info = await exchange({ port, read: (bytes) => (bytes.includes("\r\n") ? bytes : undefined) })
  assert.match(info.toString(), /"max_payload":2048/)
})

test("clients of a cluster behind proxies are told of the proxies alone", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  await using server = await startNats({ servers: 3, proxied: true })
  assert.deepEqual(
    server.ports,
    server.proxies.map(({ port }) => port),
  )
  assert.notEqual(server.directUrl, server.url)
  const info = await exchange({
    port: server.ports[0] ?? 0,
    read: (bytes) => (bytes.includes("\r\n") ? bytes : undefined),
  })
  const told = (JSON.parse(/INFO (.*)\r\n/.exec(info.toString())?.[1] ?? "") as { connect_urls: string[] }).connect_urls
  const proxies = server.ports.map((port) => `127.0.0.1:${port}`)
  assert.ok(told.length > 0)
  assert.deepEqual(
    told.filter((url) => !proxies.includes(url)),
    [],
  )
})

test("a server that cannot start says why", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  await assert.rejects(
    startNats({ settings: { no_such_setting: 1 } }),
    /nats server 1 ended while it started:[\s\S]*no_such_setting/,
  )
})

test("a server does not outlive its owner, however that ends", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  const owner = spawn(process.execPath, [join(import.meta.dirname, "owner.child.ts")], {
    stdio: ["ignore", "pipe", "inherit"],
  })
  t.after(() => owner.kill("SIGKILL"))
  const [line] = await once(owner.stdout, "data")
  const { pid, directory } = JSON.parse(String(line)) as { pid: number; directory: string }
  assert.equal(isAlive(pid), true)
  assert.equal(existsSync(directory), true)
  owner.kill("SIGKILL")
  while (isAlive(pid) || existsSync(directory)) await new Promise((resolve) => setTimeout(resolve, 5))
})
