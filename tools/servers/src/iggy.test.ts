import assert from "node:assert/strict"
import { existsSync } from "node:fs"
import { test } from "node:test"
import { startIggy } from "./iggy.ts"
import { probeIggy } from "./iggy-probe.ts"
import { serverNeed } from "./need.ts"

test("a server answers pings before and after kill -9, and leaves nothing when stopped", {
  timeout: 60_000,
}, async (t) => {
  const reason = await serverNeed("iggy", { to: "start" })
  if (reason !== undefined) {
    t.skip(`needs iggy: ${reason}`)
    return
  }
  const server = await startIggy({ user: "root", password: "secret", proxied: true })
  t.after(() => server.stop())
  const [port = 0] = server.ports
  assert.equal(server.url, `iggy://root:secret@127.0.0.1:${port}`)
  await probeIggy(port)
  await server.kill()
  await assert.rejects(probeIggy(port))
  await server.start()
  await probeIggy(port)
  await server.stop()
  assert.equal(existsSync(server.directory), false)
})
