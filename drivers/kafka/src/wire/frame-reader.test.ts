import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { FrameReader } from "./frame-reader.ts"

/** A length as the protocol writes it, and what follows. */
function frame(content: Uint8Array): Uint8Array {
  const length = Buffer.alloc(4)
  length.writeInt32BE(content.length)
  return Buffer.concat([length, content])
}

test("frames come out as they went in, wherever the stream was cut", () => {
  const contents = fc.array(fc.uint8Array({ minLength: 4, maxLength: 300 }), { maxLength: 8 })
  const cuts = fc.array(fc.nat({ max: 40 }), { minLength: 1, maxLength: 60 })
  fc.assert(
    fc.property(contents, cuts, (sent, steps) => {
      const stream = Buffer.concat(sent.map(frame))
      const reader = new FrameReader()
      const seen: Uint8Array[] = []
      let at = 0
      for (let i = 0; at < stream.length; i++) {
        const step = (steps[i % steps.length] as number) + 1
        reader.push(stream.subarray(at, at + step), (one) => seen.push(Uint8Array.from(one)))
        at += step
      }
      assert.deepEqual(
        seen,
        sent.map((one) => Uint8Array.from(one)),
      )
      assert.equal(reader.heldBytes, 0)
    }),
  )
})

for (const [what, bytes] of [
  ["negative", [0xff, 0xff, 0xff, 0xff]],
  ["the least negative", [0x80, 0, 0, 0]],
  ["too small for a correlation id", [0, 0, 0, 3]],
  ["above the limit", [0x7f, 0xff, 0xff, 0xff]],
] as const) {
  test(`a length that is ${what} is refused, also when it comes byte by byte`, () => {
    const whole = new FrameReader()
    assert.throws(() => whole.push(Uint8Array.from(bytes), () => {}), RangeError)
    const slow = new FrameReader()
    assert.throws(() => {
      for (const byte of bytes) slow.push(Uint8Array.of(byte), () => {})
    }, RangeError)
  })
}

test("a length alone reserves no memory", () => {
  const reader = new FrameReader(1 << 30)
  const length = Buffer.alloc(4)
  length.writeInt32BE(1 << 29)
  reader.push(length, () => assert.fail("no frame is complete"))
  reader.push(new Uint8Array(1000), () => assert.fail("no frame is complete"))
  assert.equal(reader.heldBytes, 1004)
})
