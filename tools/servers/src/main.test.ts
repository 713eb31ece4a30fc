import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { test } from "node:test"
import { probeNats } from "./nats-probe.ts"
import { serverNeed } from "./need.ts"
import { run } from "./programs.ts"

const main = join(import.meta.dirname, "main.ts")

test("a server for people says how to reach it, and ends with Ctrl-C", { timeout: 120_000 }, async (t) => {
  const reason = await serverNeed("nats", { to: "start" })
  if (reason !== undefined) {
    t.skip(`needs nats: ${reason}`)
    return
  }
  const child = spawn(process.execPath, [main, "nats"], { stdio: ["ignore", "pipe", "inherit"] })
  t.after(() => child.kill("SIGKILL"))
  let text = ""
  child.stdout.on("data", (part) => {
    text += part
  })
  while (!text.includes("Ctrl-C")) await once(child.stdout, "data")
  const port = Number(/MILLRACE_URL=nats:\/\/127\.0\.0\.1:(\d+) npm start/.exec(text)?.[1])
  const directory = /output: (.*)/.exec(text)?.[1] ?? ""
  await probeNats(port, {})
  assert.equal(existsSync(directory), true)
  child.kill("SIGINT")
  const [code] = await once(child, "close")
  assert.equal(code, 0)
  await assert.rejects(probeNats(port, {}), /ECONNREFUSED/)
  assert.equal(existsSync(directory), false)
})

test("what cannot be meant is refused with the usage", async () => {
  const fails = (args: readonly string[], message: RegExp): Promise<void> =>
    assert.rejects(run(process.execPath, [main, ...args]), message)
  await fails([], /exit code 1:\nusage: npm run servers/)
  await fails(["pulsar"], /usage/)
  await fails(["kafka", "nats"], /usage/)
  await fails(["kafka", "--brokers", "2"], /--brokers 2 is neither 1 nor 3/)
  await fails(["iggy", "--brokers", "3"], /one server/)
  await fails(["nats", "--port", "1"], /--port[\s\S]*usage/)
})
