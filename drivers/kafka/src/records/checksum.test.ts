import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { crc32c } from "./checksum.ts"
import { crc32cByTable } from "./checksum-table.ts"

test("a checksum is that of RFC 3720, appendix B.4", () => {
  const counted = (count: number, byte: (i: number) => number): Uint8Array =>
    Uint8Array.from({ length: count }, (_, i) => byte(i))
  const known: [Uint8Array, number][] = [
    [counted(32, () => 0), 0x8a9136aa],
    [counted(32, () => 0xff), 0x62a8ab43],
    [counted(32, (i) => i), 0x46dd794e],
    [counted(32, (i) => 31 - i), 0x113fdb5c],
    [new TextEncoder().encode("123456789"), 0xe3069283],
    [new Uint8Array(0), 0],
  ]
  for (const [bytes, sum] of known) {
    assert.equal(crc32cByTable(bytes), sum)
    assert.equal(crc32c(bytes), sum)
  }
})

test("the quickest way and the table agree on every length and position", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 1_000 }), fc.nat(10), (bytes, start) => {
      const part = bytes.subarray(start)
      assert.equal(crc32c(part), crc32cByTable(part))
      assert.equal(crc32c(bytes, start), crc32cByTable(part))
      assert.equal(crc32cByTable(bytes, start), crc32cByTable(part))
    }),
  )
})
