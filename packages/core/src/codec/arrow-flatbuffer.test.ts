import assert from "node:assert/strict"
import { test } from "node:test"
import { FlatTable } from "./arrow-flatbuffer.ts"

/** A table with one text in slot 0, in the middle of a larger buffer. Byte 20 is the length of the text, its bytes follow. */
function table(length: number): Uint8Array {
  const room = new Uint8Array(200).fill(65)
  const bytes = room.subarray(10, 36)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  view.setUint32(0, 12, true)
  view.setUint16(4, 6, true)
  view.setUint16(6, 8, true)
  view.setUint16(8, 4, true)
  view.setInt32(12, 8, true)
  view.setUint32(16, 4, true)
  view.setUint32(20, length, true)
  return bytes
}

test("fields are found through the vtable, and those that it lacks are absent", () => {
  const root = FlatTable.root(table(2))
  assert.equal(root.text(0), "AA")
  assert.equal(root.text(1), undefined)
  assert.equal(root.table(7), undefined)
  assert.deepEqual(root.tables(3, 10), [])
  assert.deepEqual(
    [root.int32(2, -5), root.int16(2, 3), root.uint8(2, 4), root.flag(2), root.int64(2)],
    [-5, 3, 4, false, 0n],
  )
})

test("nothing is read behind the bytes, though the buffer goes on there", () => {
  assert.throws(() => FlatTable.root(table(3)).text(0), RangeError)
  assert.throws(() => FlatTable.root(table(2 ** 32 - 1)).text(0), RangeError)
  assert.throws(() => FlatTable.root(table(1)).count(0, 3), RangeError)
  assert.throws(() => FlatTable.root(table(2).subarray(0, 18)).text(0), RangeError)
})

test("more tables than are allowed are refused before any is read", () => {
  const bytes = new Uint8Array(500)
  bytes.set(table(100))
  assert.throws(() => FlatTable.root(bytes).tables(0, 99), /100 tables is longer than 99/)
})
