import assert from "node:assert/strict"
import { existsSync } from "node:fs"
import { dirname } from "node:path"
import type { TestContext } from "node:test"
import { test } from "node:test"
import { probeNats } from "./nats-probe.ts"
import { serverNeed } from "./need.ts"
import { run } from "./programs.ts"
import { ServerHost } from "./server-host.ts"
import { hostVariable } from "./shared-server.ts"

/** Asks from a process of its own, as a test file does. */
async function ask(kind: string, env: Readonly<Record<string, string>>): Promise<{ url: string; ports: number[] }> {
  const module = new URL("./shared-server.ts", import.meta.url).href
  const program = `const { sharedServer } = await import(${JSON.stringify(module)})
    console.log(JSON.stringify(await sharedServer(${JSON.stringify(kind)})))`
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program], { env })
  return JSON.parse(stdout) as { url: string; ports: number[] }
}

async function canRun(t: TestContext): Promise<boolean> {
  const reason = await serverNeed("nats", { to: "start" })
  if (reason !== undefined) t.skip(`needs nats: ${reason}`)
  return reason === undefined
}

const timeout = 120_000

test("files of a run share the server that the first asked for, and it ends with the run", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  const host = await ServerHost.open()
  t.after(() => host.close())
  const env = { ...host.environment, MILLRACE_NATS_URL: "" }
  const [first, second] = await Promise.all([ask("nats", env), ask("nats", env)])
  assert.deepEqual(first, second)
  const [port = 0] = first.ports
  await probeNats(port, {})
  await host.close()
  await assert.rejects(probeNats(port, {}), /ECONNREFUSED/)
  assert.equal(existsSync(dirname(host.environment[hostVariable] ?? "")), false)
})

test("a file that is run alone has a server of its own, which ends with it", { timeout }, async (t) => {
  if (!(await canRun(t))) return
  const { ports } = await ask("nats", { MILLRACE_NATS_URL: "", [hostVariable]: "" })
  let gone = false
  while (!gone) {
    gone = await probeNats(ports[0] ?? 0, {}).then(
      () => false,
      () => true,
    )
  }
})

test("a server that somebody else runs is taken as it is", async () => {
  const url = "nats://u:p@127.0.0.1:1,127.0.0.1:2/?x=1:3"
  assert.deepEqual(await ask("nats", { MILLRACE_NATS_URL: url }), {
    kind: "nats",
    url,
    ports: [1, 2],
    version: "unknown",
  })
})

test("what the run cannot start is told to the file that asked", async (t) => {
  await using host = await ServerHost.open()
  t.diagnostic(String(host.environment[hostVariable]))
  await assert.rejects(ask("pulsar", host.environment), /there is no server "pulsar"/)
})
