import assert from "node:assert/strict"
import { existsSync } from "node:fs"
import type { TestContext } from "node:test"
import { test } from "node:test"
import { kafkaClassPath } from "./java.ts"
import { startKafka } from "./kafka.ts"
import { probeBroker } from "./kafka-probe.ts"
import { serverNeed } from "./need.ts"
import { run } from "./programs.ts"

const timeout = 240_000

async function canRun(t: TestContext): Promise<boolean> {
  const reason = await serverNeed("kafka", { to: "start" })
  if (reason !== undefined) t.skip(`needs kafka: ${reason}`)
  return reason === undefined
}

/** Kafka's own tool for topics. */
async function topicTool(url: string, ...args: readonly string[]): Promise<string> {
  const servers = url.replace("kafka://", "")
  const tool = "org.apache.kafka.tools.TopicCommand"
  const java = ["-cp", await kafkaClassPath(), "-XX:TieredStopAtLevel=1", tool, "--bootstrap-server", servers, ...args]
  return (await run("java", java)).stdout
}

test("a broker behind a proxy keeps its topics over kill -9 and a restart, and leaves nothing when stopped", {
  timeout,
}, async (t) => {
  if (!(await canRun(t))) return
  const server = await startKafka({ proxied: true, settings: { "message.max.bytes": "12345" } })
  t.after(() => server.stop())
  const [proxy] = server.proxies
  assert.ok(proxy !== undefined)
  assert.equal(server.url, `kafka://127.0.0.1:${proxy.port}`)
  assert.notEqual(server.directUrl, server.url)
  await topicTool(server.directUrl, "--create", "--topic", "kept", "--partitions", "3")
  assert.equal(proxy.accepted, 0, "the direct way goes past the proxy")
  await server.kill()
  await assert.rejects(probeBroker(proxy.port, [1]), /ECONNRESET/)
  await server.start()
  const before = proxy.accepted
  const described = await topicTool(server.url, "--describe", "--topic", "kept")
  assert.match(described, /PartitionCount: 3/)
  assert.ok(proxy.accepted >= before + 2, "the broker sends clients to the proxy, not past it")
  assert.match(server.logs(), /Kafka Server started/)
  await server.stop()
  assert.equal(existsSync(server.directory), false)
})

test("three brokers are one cluster, of which one can go and come", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  await using server = await startKafka({ brokers: 3 })
  await server.kill("SIGKILL", 1)
  await probeBroker(server.ports[0] ?? 0, [1, 3])
  await server.start(1)
  await probeBroker(server.ports[1] ?? 0, [1, 2, 3])
  assert.match(await topicTool(server.urls[1] ?? "", "--describe"), /__consumer_offsets.*ReplicationFactor: 3/)
})

test("a setting that Kafka refuses is told with its words", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  await assert.rejects(startKafka({ settings: { "num.io.threads": "none" } }), /num\.io\.threads/)
})
