import assert from "node:assert/strict"
import { statSync } from "node:fs"
import { join } from "node:path"
import { describe, it } from "node:test"
import { EngineFixture } from "./engine.test-support.ts"

function walBytes(store: EngineFixture): number {
  return statSync(join(store.path, "millrace.db-wal")).size
}

describe("the write-ahead log", () => {
  it("begins anew while one writes all the time, though others have the store open", () => {
    using store = new EngineFixture()
    using other = new EngineFixture(store.path)
    const topic = store.createTopic({ durability: "written" })
    const described = other.call<typeof topic>("catalog.describeTopic", { stream: "s", topic: "log" })
    let most = 0
    for (let i = 0; i < 60; i++) {
      store.appendMany(topic, 10, { bytes: 100_000 })
      if (i % 10 === 0) other.read(described, 0n, { limits: { maxBytes: 1 } })
      most = Math.max(most, walBytes(store))
    }
    assert.ok(most < 24 << 20, `${most} bytes`)
  })

  it("does not hold the bytes of large batches of a synced topic", () => {
    using store = new EngineFixture()
    const topic = store.createTopic()
    for (let i = 0; i < 20; i++) store.appendMany(topic, 10, { bytes: 100_000 })
    assert.ok(walBytes(store) < 1 << 20)
  })
})
