/** Chapter: what goes in comes out: every byte, every kind, every order, and the limits to the byte. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type HeaderKind, HeaderValue, headerKindCodes } from "@millrace/contract"
import fc from "fast-check"
import { bytes, type Draft, type Seen, text } from "../rig/records.ts"
import type { Rig } from "../rig/rig.ts"

export function fidelityChapter(rig: Rig): void {
  describe("fidelity", () => {
    test("a payload that is absent is not an empty one, and neither is a key", async () => {
      const seen = await roundTrip(rig, [
        { payload: null, key: null },
        { payload: "", key: "" },
        { payload: null, key: "k" },
        { payload: "p", key: null },
      ])
      assert.deepEqual(
        seen.map((record) => [record.payload?.length, record.key?.length]),
        [
          [undefined, undefined],
          [0, 0],
          [undefined, 1],
          [1, undefined],
        ],
      )
      assert.equal(seen[0]?.payload, null)
      assert.equal(seen[0]?.key, null)
    })

    test("every byte, and text of every script", async () => {
      const all = Uint8Array.from({ length: 256 }, (_, index) => index)
      const words = "ascii \u0000 ünïcode 流れ 🌊 e\u0301 \u202e"
      const [raw, spoken] = await roundTrip(rig, [
        { payload: all, key: all.subarray(0, Math.min(all.length, rig.manifest.limits.keyBytes)) },
        { payload: words, key: words, headers: [[words, words]] },
      ])
      assert.deepEqual(raw?.payload, all)
      assert.deepEqual(raw?.key, all.subarray(0, rig.manifest.limits.keyBytes))
      assert.equal(text(spoken?.payload), words)
      assert.equal(text(spoken?.key), words)
      assert.equal(spoken?.headers.get(words)?.value, words)
    })

    test("headers of every kind keep kind and value, to the extremes", async () => {
      const values: [HeaderKind, HeaderValue][] = [
        ["raw", HeaderValue.raw(Uint8Array.of(0, 255, 10, 13))],
        ["raw", HeaderValue.raw(new Uint8Array(0))],
        ["string", HeaderValue.string("")],
        ["string", HeaderValue.string("line\nbreak 🌊")],
        ["bool", HeaderValue.bool(true)],
        ["bool", HeaderValue.bool(false)],
        ["int8", HeaderValue.int8(-128)],
        ["int16", HeaderValue.int16(-32_768)],
        ["int32", HeaderValue.int32(-2_147_483_648)],
        ["int64", HeaderValue.int64(-(2n ** 63n))],
        ["int128", HeaderValue.int128(-(2n ** 127n))],
        ["int128", HeaderValue.int128(2n ** 127n - 1n)],
        ["uint8", HeaderValue.uint8(255)],
        ["uint16", HeaderValue.uint16(65_535)],
        ["uint32", HeaderValue.uint32(4_294_967_295)],
        ["uint64", HeaderValue.uint64(2n ** 64n - 1n)],
        ["uint128", HeaderValue.uint128(2n ** 128n - 1n)],
        ["float", HeaderValue.float(1.5)],
        ["float", HeaderValue.float(Number.NaN)],
        ["double", HeaderValue.double(-0)],
        ["double", HeaderValue.double(Number.MIN_VALUE)],
        ["double", HeaderValue.double(Number.NEGATIVE_INFINITY)],
      ]
      assert.deepEqual(new Set(values.map(([kind]) => kind)), new Set(Object.keys(headerKindCodes)))
      const [seen] = await roundTrip(rig, [
        { payload: "", headers: values.map(([kind, value]) => [kind, value] as const) },
      ])
      const back = [...(seen?.headers ?? [])]
      assert.equal(back.length, values.length)
      for (const [index, [name, value]] of back.entries()) {
        const [kind, sent] = values[index] as [HeaderKind, HeaderValue]
        assert.equal(name, kind)
        assert.ok(value.equals(sent), `header ${index}: ${JSON.stringify(sent)} came back as ${JSON.stringify(value)}`)
      }
    })

    test("A-19: repeated header names come back in their order, each with its own value", async () => {
      const headers: [string, string][] = [
        ["a", "1"],
        ["b", "x"],
        ["a", "2"],
        ["a", "1"],
      ]
      const [seen] = await roundTrip(rig, [{ payload: "", headers }])
      assert.deepEqual(
        [...(seen?.headers ?? [])].map(([name, value]) => [name, value.value]),
        headers,
      )
    })

    test("ids: a record has its batch's id and its index, unless it was given one", async () => {
      const id = rig.batchId()
      const own = 2n ** 128n - 1n
      const topic = await rig.topic()
      const batch = rig.batch(topic, 0, ["a", { payload: "b", id: own }, { payload: "c", id: 1n }, "d"], { id })
      await rig.session.log.append(batch, {})
      batch.release()
      const seen = await rig.readAll(topic, 0)
      assert.deepEqual(
        seen.map((record) => record.id),
        rig.manifest.read.ids === "all" ? [id, own, 1n, id + 3n] : [undefined, own, 1n, undefined],
      )
    })

    test("the sender's times are kept beside the append times, where the backend keeps them", async () => {
      const resolution = BigInt(rig.manifest.read.timestampResolutionMicros)
      // Where the sender's time is the only one, backends refuse what lies far ahead.
      const ahead = rig.manifest.read.originTimestamp === "only" ? rig.now() + 60_000_000n : 2n ** 62n
      const times = [0n, 1_000_000n, 1_700_000_000_123_456n, ahead]
      const topic = await rig.topic()
      const before = rig.now()
      await rig.append(topic, 0, [
        ...times.map((timestampMicros) => ({ payload: "given", timestampMicros })),
        "not given",
      ])
      const seen = await rig.readAll(topic, 0)
      for (const [index, time] of times.entries()) {
        assert.equal(seen[index]?.originTimestampMicros, (time / resolution) * resolution)
      }
      if (rig.manifest.read.originTimestamp === "given")
        return assert.equal(seen.at(-1)?.originTimestampMicros, undefined)
      const last = seen.at(-1)?.originTimestampMicros ?? 0n
      assert.ok(last >= before - resolution && last <= rig.now() + resolution, `the batch's time, not ${last}`)
    })

    test("any records come back as they were, in one batch or one by one", async () => {
      const parameters = { numRuns: 25 }
      await fc.assert(
        fc.asyncProperty(
          fc.array(anyRecordOf(rig), { minLength: 1, maxLength: 12 }).filter(haveOwnIds),
          fc.boolean(),
          async (records, together) => {
            const topic = await rig.topic()
            if (together) await rig.append(topic, 0, records)
            else for (const record of records) await rig.append(topic, 0, [record])
            const seen = await rig.readAll(topic, 0)
            assert.equal(seen.length, records.length)
            for (const [index, record] of records.entries()) same(seen[index], record)
          },
        ),
        parameters,
      )
    })

    test("a key, a header name and a header block of the greatest length", async () => {
      const { keyBytes, headerNameBytes, headersBytes, headerValueBytes } = rig.manifest.limits
      const key = new Uint8Array(Math.min(keyBytes, 1_000_000)).fill(0x61)
      const name = "n".repeat(Math.min(headerNameBytes, 1_000))
      const value = new Uint8Array(Math.min(headerValueBytes, headersBytes - 1_000, 99_000)).fill(1)
      const [seen] = await roundTrip(rig, [{ payload: "", key, headers: [[name, HeaderValue.raw(value)]] }])
      assert.deepEqual(seen?.key, key)
      assert.deepEqual(seen?.headers.get(name)?.bytes, value)
    })

    test("a payload of exactly the greatest length", async () => {
      const payload = new Uint8Array(rig.manifest.limits.payloadBytes)
      for (let index = 0; index < payload.length; index += 4_093) payload[index] = index & 0xff
      const [seen] = await roundTrip(rig, [{ payload }])
      assert.ok(seen?.payload !== null && seen?.payload !== undefined)
      assert.equal(Buffer.compare(seen.payload, payload), 0)
    })

    test("A-18: bigint all the way: ids, offsets and times of records have one type", async () => {
      const [seen] = await roundTrip(rig, ["a"])
      assert.equal(typeof seen?.offset, "bigint")
      if (rig.manifest.read.ids === "all") assert.equal(typeof seen?.id, "bigint")
      assert.equal(typeof seen?.timestampMicros, "bigint")
    })
  })
}

async function roundTrip(rig: Rig, drafts: readonly Draft[]): Promise<Seen[]> {
  const topic = await rig.topic()
  await rig.append(topic, 0, drafts)
  const seen = await rig.readAll(topic, 0)
  assert.equal(seen.length, drafts.length)
  return seen
}

const anyName = fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).filter((name) => name.isWellFormed())

interface AnyRecord {
  payload: Uint8Array | null
  key: Uint8Array | null
  headers: [string, HeaderValue][]
  id?: bigint
}

/** Records of every kind, within what the backend takes. */
function anyRecordOf(rig: Rig): fc.Arbitrary<AnyRecord> {
  const { keyBytes, headerValueBytes } = rig.manifest.limits
  const someBytes = (most: number): fc.Arbitrary<Uint8Array> => fc.uint8Array({ maxLength: Math.min(300, most) })
  const anyHeader = fc.oneof(
    someBytes(headerValueBytes).map((value) => HeaderValue.raw(value)),
    fc.string({ unit: "binary", maxLength: 40 }).map((value) => HeaderValue.string(value.toWellFormed())),
    fc.boolean().map((value) => HeaderValue.bool(value)),
    fc.integer({ min: -128, max: 127 }).map((value) => HeaderValue.int8(value)),
    fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((value) => HeaderValue.int64(value)),
    fc.bigInt({ min: 0n, max: 2n ** 128n - 1n }).map((value) => HeaderValue.uint128(value)),
    fc.double().map((value) => HeaderValue.double(value)),
  )
  return fc.record(
    {
      payload: fc.option(someBytes(300), { nil: null }),
      key: fc.option(someBytes(keyBytes), { nil: null }),
      headers: fc.array(fc.tuple(anyName, anyHeader), { maxLength: 4 }),
      id: fc.bigInt({ min: 1n, max: 2n ** 128n - 1n }),
    },
    { requiredKeys: ["payload", "key", "headers"] },
  )
}

/** Of two records with one id a backend may rightly store one. */
function haveOwnIds(records: readonly AnyRecord[]): boolean {
  const ids = records.flatMap(({ id }) => id ?? [])
  return new Set(ids).size === ids.length
}

function same(seen: Seen | undefined, sent: AnyRecord): void {
  assert.deepEqual(seen?.payload, sent.payload)
  assert.deepEqual(seen?.key, sent.key)
  if (sent.id !== undefined) assert.equal(seen?.id, sent.id)
  const back = [...(seen?.headers ?? [])]
  assert.deepEqual(
    back.map(([name]) => bytes(name)),
    sent.headers.map(([name]) => bytes(name)),
  )
  for (const [index, [, value]] of back.entries()) {
    assert.ok(value.equals(sent.headers[index]?.[1] as HeaderValue), `header ${index} changed`)
  }
}
