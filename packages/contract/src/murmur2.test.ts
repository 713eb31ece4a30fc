import assert from "node:assert/strict"
import { test } from "node:test"
import { murmur2 } from "./murmur2.ts"

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

test("hashes keys as Kafka's Java client does", () => {
  // Values of Apache Kafka's own UtilsTest, sign bit cleared.
  const known: [string, number][] = [
    ["21", -973932308],
    ["foobar", -790332482],
    ["a-little-bit-long-string", -985981536],
    ["a-little-bit-longer-string", -1486304829],
    ["lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971],
    ["abc", 479470107],
  ]
  for (const [key, hash] of known) assert.equal(murmur2(bytes(key)), hash & 0x7fffffff, key)
})

test("keyed records meet the partitions that the Java client gives them", () => {
  assert.equal(murmur2(bytes("100:48069")) % 12, 9)
  assert.equal(murmur2(bytes("wu")) % 10, 0)
  assert.equal(murmur2(bytes("fd7af248-ce5c-46a5-93d7-1c0c9005b99d")) % 32, 26)
})
