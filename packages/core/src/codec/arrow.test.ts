import assert from "node:assert/strict"
import { createRequire } from "node:module"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import { type Table, tableFromArrays, tableToIPC } from "apache-arrow"
import fc from "fast-check"
import { arrow } from "./arrow.ts"
import { dictionary, jsFile, nullable, simpleFile, simpleStream } from "./arrow-fixtures.test-support.ts"
import { describeArrowIpc } from "./arrow-ipc.ts"
import { hexText } from "./plain-values.test-support.ts"

const codec = arrow<Table>()

describe("Arrow", () => {
  test("reads what another implementation wrote, as a stream or a file", () => {
    for (const bytes of [simpleStream, simpleFile]) {
      const table = codec.decode(bytes)
      assert.equal(table.numRows, 3)
      assert.deepEqual([...(table.getChild("id") ?? [])], [1n, 2n, 3n])
      assert.deepEqual([...(table.getChild("name") ?? [])], ["a", null, "c"])
    }
    for (const bytes of [dictionary, jsFile]) assert.equal(codec.decode(bytes).numRows, 3)
    assert.equal(codec.decode(nullable).numRows, 0)
  })

  test("writes a stream whose schema has the fingerprint of what was read", () => {
    const payload = codec.encode(codec.decode(simpleStream))
    assert.equal(describeArrowIpc(payload).format, "stream")
    assert.equal(
      hexText(codec.describe(payload).schemaFingerprint),
      hexText(describeArrowIpc(simpleStream).schemaFingerprint),
    )
    assert.deepEqual(codec.decode(payload).toString(), codec.decode(simpleStream).toString())
  })

  test("a table of columns comes back, 64-bit integers whole", () => {
    const table = tableFromArrays({
      id: BigInt64Array.of(2n ** 62n, -1n),
      price: Float64Array.of(1.5, -0),
      name: ["a", "\u00e9"],
    })
    const back = codec.decode(codec.encode(table))
    assert.deepEqual([...(back.getChild("id") ?? [])], [2n ** 62n, -1n])
    assert.deepEqual([...(back.getChild("price") ?? [])], [1.5, -0])
    assert.deepEqual([...(back.getChild("name") ?? [])], ["a", "\u00e9"])
  })

  test("what is read shares no memory with the payload, wherever that lies", () => {
    for (const offset of [0, 3, 8]) {
      const room = new Uint8Array(simpleStream.length + offset)
      room.set(simpleStream, offset)
      const table = codec.decode(room.subarray(offset))
      room.fill(0)
      assert.deepEqual([...(table.getChild("id") ?? [])], [1n, 2n, 3n])
    }
  })

  test("refuses what is no table", () => {
    for (const value of [null, 5, {}, [], { numRows: 1 }, "x"]) {
      assert.throws(
        () => codec.encode(value as never),
        (error) => error instanceof InvalidError && /a Table of the apache-arrow/.test(error.message),
      )
    }
  })

  test("refuses a table of the copy of the library that require loads, which it could not write", () => {
    const other = createRequire(import.meta.url)("apache-arrow") as { tableFromArrays(columns: object): Table }
    assert.throws(() => codec.encode(other.tableFromArrays({ id: [1] })), /a table of another copy of it/)
  })

  test("refuses bytes that are cut off, or followed by others", () => {
    for (const end of [0, 5, 100, simpleStream.length - 9])
      assert.throws(() => codec.decode(simpleStream.subarray(0, end)), InvalidError)
    const table = tableToIPC(codec.decode(simpleStream), "stream")
    assert.throws(() => codec.decode(Uint8Array.from([...table, 1, 2, 3])), InvalidError)
  })

  test("damage gives a table or an Error, and takes no memory for what is not there", () => {
    const before = process.memoryUsage().rss
    fc.assert(
      fc.property(fc.nat(simpleStream.length - 1), fc.nat(255), (at, byte) => {
        const damaged = simpleStream.slice()
        damaged[at] = byte
        try {
          codec.decode(damaged)
        } catch (error) {
          assert.ok(error instanceof Error)
        }
      }),
      { numRuns: 1000 },
    )
    assert.ok(process.memoryUsage().rss - before < 300 << 20)
  })
})
