import assert from "node:assert/strict"
import test from "node:test"
import { seededRandom } from "@millrace/runtime"
import { DiskModel, type Fate, fates } from "./disk-model.ts"
import type { TraceEvent } from "./strace-trace.ts"

const write = (path: string, offset: number, text: string): TraceEvent => {
  return { kind: "write", path, offset, data: Buffer.from(text) }
}

function imageOf(events: readonly TraceEvent[], fate: Fate, seed: number = 1): Record<string, string> {
  const model = new DiskModel(["/s"])
  for (const event of events) model.apply(event)
  return Object.fromEntries(
    Array.from(model.image(fate, seededRandom(seed)), ([path, bytes]) => [path, Buffer.from(bytes).toString()]),
  )
}

const synced: TraceEvent[] = [
  { kind: "create", path: "/s/a", truncate: false },
  write("/s/a", 0, "hello"),
  { kind: "sync", path: "/s/a", since: 2 },
  { kind: "sync", path: "/s", since: 3 },
]

test("what was synced is there whatever the fate of the rest", () => {
  for (const fate of fates) assert.deepEqual(imageOf(synced, fate), { "/s/a": "hello" })
})

test("what was not synced may be missing, and a name is certain only when its directory was synced", () => {
  assert.deepEqual(imageOf([...synced, write("/s/a", 5, " you")], "none"), { "/s/a": "hello" })
  assert.deepEqual(imageOf([...synced, write("/s/a", 5, " you")], "all"), { "/s/a": "hello you" })
  assert.deepEqual(imageOf(synced.slice(0, 3), "none"), {})
  assert.deepEqual(imageOf(synced.slice(0, 3), "all"), { "/s/a": "hello" })
})

test("a sync covers only what had come back when it was called", () => {
  const events: TraceEvent[] = [
    ...synced,
    write("/s/a", 0, "J"),
    write("/s/a", 1, "E"),
    { kind: "sync", path: "/s/a", since: 5 },
  ]
  assert.deepEqual(imageOf(events, "none"), { "/s/a": "Jello" })
})

test("removing, shrinking and making directories wait for a sync like all else", () => {
  const removed: TraceEvent[] = [...synced, { kind: "remove", path: "/s/a" }]
  assert.deepEqual(imageOf(removed, "none"), { "/s/a": "hello" })
  assert.deepEqual(imageOf(removed, "all"), {})
  assert.deepEqual(imageOf([...removed, { kind: "sync", path: "/s", since: 5 }], "none"), {})
  const shrunk: TraceEvent[] = [
    ...synced,
    { kind: "resize", path: "/s/a", size: 2, shrink: true },
    write("/s/a", 4, "!"),
  ]
  assert.deepEqual(imageOf(shrunk, "all"), { "/s/a": "he\0\0!" })
  const nested: TraceEvent[] = [
    { kind: "mkdir", path: "/s/d" },
    { kind: "create", path: "/s/d/b", truncate: false },
    { kind: "sync", path: "/s/d", since: 2 },
  ]
  assert.deepEqual(imageOf(nested, "none"), {})
  assert.deepEqual(imageOf([...nested, { kind: "sync", path: "/s", since: 3 }], "none"), { "/s/d/b": "" })
})

test("torn writes lose sectors, and the same seed tears the same ones", () => {
  const events: TraceEvent[] = [...synced, write("/s/a", 0, "x".repeat(40_000))]
  const texts = new Set(Array.from({ length: 20 }, (_, seed) => imageOf(events, "torn", seed)["/s/a"] as string))
  assert.ok(texts.size > 10)
  assert.ok([...texts].some((text) => text.includes("\0") && text.includes("x")))
  assert.deepEqual(imageOf(events, "torn", 7), imageOf(events, "torn", 7))
})
