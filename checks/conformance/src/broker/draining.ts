/** Chapter: a process that is told to end while what it accepted is still on its way. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { DrainChild } from "../rig/drain-child.ts"
import { numbered } from "../rig/records.ts"
import type { BrokerRig } from "./broker-rig.ts"

const records = 1_000

export function drainingChapter(rig: BrokerRig): void {
  describe("a process that gets SIGTERM", () => {
    test("A-02: delivers all that it accepted when the way is free again, and ends by itself with 0", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client)
      const child = new DrainChild([rig.server.url, topic.stream, topic.name, `${records}`, "30000"])
      await child.told("ready")
      rig.proxy.stall()
      child.go()
      await child.told("accepted")
      child.terminate()
      setTimeout(() => rig.proxy.flow(), 2_000)
      const closed = await child.told("closed")
      assert.ok(
        Number(closed.ms) > 1_500,
        `the close took ${closed.ms} ms, although nothing could be delivered for 2 s`,
      )
      assert.equal(await child.exited(), 0)
      const stored = await rig.stored(topic)
      const once = client.manifest.append.dedup === "none" ? [...new Set(stored)] : stored
      assert.deepEqual(once, numbered("r", 0, records))
      await client.close()
    })

    test("A-02: says at its deadline which records were not delivered, and ends by itself", async () => {
      const client = await rig.connect()
      const topic = await rig.topic(client)
      const child = new DrainChild([rig.server.url, topic.stream, topic.name, `${records}`, "3000"])
      await child.told("ready")
      rig.proxy.stall()
      try {
        child.go()
        await child.told("accepted")
        child.terminate()
        const failed = await child.told("failed")
        assert.ok(Number(failed.ms) >= 2_900 && Number(failed.ms) < 5_500, `the close took ${failed.ms} ms`)
        assert.match(String(failed.message), /1,?000 records|1000 unconfirmed/)
        assert.deepEqual(failed.payloads, numbered("r", 0, records))
        assert.equal(await child.exited(), 3)
      } finally {
        rig.proxy.flow()
      }
      await client.close()
    })
  })
}
