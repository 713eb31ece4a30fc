import assert from "node:assert/strict"
import { test } from "node:test"
import type { TopicSpec } from "@millrace/contract"
import fc from "fast-check"
import { fromConfig, nativeSettings, toConfig } from "./topic-config.ts"

const plain: TopicSpec = {
  partitions: 3,
  durability: "written",
  offsetDurability: "written",
  deduplicationWindowMs: 0,
  deduplicateIds: false,
}

/** As a broker tells a topic's configuration: its own defaults, and what was set. */
function told(set: ReadonlyMap<string, string>): Parameters<typeof fromConfig>[0] {
  const defaults = new Map([
    ["cleanup.policy", "delete"],
    ["retention.ms", "604800000"],
    ["retention.bytes", "-1"],
    ["flush.messages", "9223372036854775807"],
    ["segment.ms", "604800000"],
  ])
  return { values: new Map([...defaults, ...set]), overridden: new Set(set.keys()) }
}

test("absent limits are set, since the broker's own would expire records after a week", () => {
  const config = toConfig(plain, {})
  assert.equal(config.get("retention.ms"), "-1")
  assert.equal(config.get("retention.bytes"), "-1")
  assert.ok(!config.has("flush.messages"))
  const { partitions: _, ...spec } = plain
  assert.deepEqual(fromConfig(told(config), 3), spec)
})

test("a topic that somebody else made tells the broker's defaults", () => {
  assert.equal(fromConfig(told(new Map()), 1).expireAfterMs, 604_800_000)
})

test("settings come back as they were given; a size up to its share of rounding", () => {
  const specs = fc.record({
    partitions: fc.integer({ min: 1, max: 64 }),
    expireAfterMs: fc.integer({ min: 0, max: 2 ** 40 }),
    maxBytes: fc.bigInt({ min: 1n, max: 1n << 50n }),
    synced: fc.boolean(),
  })
  fc.assert(
    fc.property(specs, ({ partitions, expireAfterMs, maxBytes, synced }) => {
      const durability = synced ? "synced" : "written"
      const config = toConfig({ ...plain, partitions, expireAfterMs, maxBytes, durability }, {})
      const back = fromConfig(told(config), partitions)
      assert.equal(back.expireAfterMs, expireAfterMs)
      assert.equal(back.durability, durability)
      const above = (back.maxBytes ?? 0n) - maxBytes
      assert.ok(above >= 0n && above < BigInt(partitions))
    }),
  )
})

test("synced is a flush for each message", () => {
  assert.equal(toConfig({ ...plain, durability: "synced" }, {}).get("flush.messages"), "1")
})

test("a compacted topic expires nothing", () => {
  const spec = fromConfig(told(new Map([["cleanup.policy", "compact"]])), 1)
  assert.equal(spec.expireAfterMs, undefined)
  assert.equal(spec.maxBytes, undefined)
  assert.deepEqual(spec.native, { config: { "cleanup.policy": "compact" } })
})

test("native settings win, come back, and are checked", () => {
  const native = nativeSettings({
    ...plain,
    native: { config: { "segment.ms": 100, "retention.ms": 5 }, replicationFactor: 3 },
  })
  assert.equal(native.replicationFactor, 3)
  const config = toConfig(plain, native)
  assert.equal(config.get("segment.ms"), "100")
  assert.equal(config.get("retention.ms"), "5")
  assert.deepEqual(fromConfig(told(config), 3).native, { config: { "segment.ms": "100" } })
  for (const wrong of [{ replicas: 3 }, { replicationFactor: 0 }, { config: "x" }, { config: { a: {} } }]) {
    assert.throws(() => nativeSettings({ ...plain, native: wrong }), { kind: "invalid" })
  }
})
