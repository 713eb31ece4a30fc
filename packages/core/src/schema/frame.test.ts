/**
 * Confluent's wire format. The Avro bytes are a published example: schema id 1337, a record whose name is "foo". Places of messages are a count and
 * its numbers, all as zigzag varints, and `00` alone for the first message (Schema Registry documentation, "Wire format").
 */
import assert from "node:assert/strict"
import { test } from "node:test"
import { DecodeError } from "@millrace/contract"
import fc from "fast-check"
import { frame, framedId, framedMessage } from "./frame.ts"

const bytes = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex.replaceAll(" ", ""), "hex"))

test("ids are big-endian behind a zero", () => {
  assert.deepEqual(frame(1337, undefined), bytes("00 00 00 05 39"))
  assert.equal(framedId(bytes("00 00 00 05 39 08 66 6f 6f 6f")), 1337)
  assert.equal(framedId(bytes("00 ff ff ff ff")), 2 ** 32 - 1)
  assert.deepEqual(frame(2 ** 32 - 1, undefined), bytes("00 ff ff ff ff"))
})

test("places of messages", () => {
  const cases: readonly (readonly [place: number[], hex: string])[] = [
    [[0], "00"],
    [[1], "02 02"],
    [[1, 0], "04 02 00"],
    [[0, 0], "04 00 00"],
    [[2, 3, 64], "06 04 06 80 01"],
  ]
  for (const [place, hex] of cases) {
    assert.deepEqual(frame(1, place), bytes(`00 00000001 ${hex}`))
    assert.deepEqual(framedMessage(bytes(`00 00000001 ${hex} aa`)), {
      messageIndex: place,
      start: 5 + bytes(hex).length,
    })
  }
  // The first message may also be written out.
  assert.deepEqual(framedMessage(bytes("00 00000001 02 00 aa")).messageIndex, [0])
})

test("what is no frame is a decode error", () => {
  for (const hex of ["", "00", "00 00 00 01", "01 00 00 00 01", "7b 22 61 22 3a"]) {
    assert.throws(() => framedId(bytes(hex)), DecodeError, hex)
  }
  for (const hex of ["", "04 00", "01", "80", "80 80 80 80 80 80", "fe ff ff ff 0f", "ca 01"]) {
    assert.throws(() => framedMessage(bytes(`00 00000001 ${hex}`)), DecodeError, hex)
  }
})

test("every frame is read as it was written", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 2 ** 32 - 1 }),
      fc.array(fc.nat(2 ** 31 - 1), { minLength: 1, maxLength: 5 }),
      (id, place) => {
        const written = frame(id, place)
        assert.equal(framedId(written), id)
        assert.deepEqual(framedMessage(written), { messageIndex: place, start: written.length })
      },
    ),
  )
})
