import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { MillraceError } from "@millrace/contract"
import fc from "fast-check"
import { exchanges } from "../codec/exchanges.test-support.ts"
import { type Frame, FrameReader } from "./frame-reader.ts"
import { headerBytes, sizeAt } from "./header.ts"

const frames = exchanges.map((one) => one.response).filter((response) => response.length > 0)
const stream = Buffer.concat(frames)

function reader(mostBytes = 1 << 20): FrameReader {
  return new FrameReader({ mostBytes, check: () => undefined })
}

describe("the frame reader", () => {
  it("finds the recorded frames however the stream is cut", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1, maxLength: 50 }), (cuts) => {
        const found: Frame[] = []
        const one = reader()
        for (let at = 0, i = 0; at < stream.length; i++) {
          const size = cuts[i % cuts.length] as number
          found.push(...one.push(stream.subarray(at, at + size)))
          at += size
        }
        assert.equal(found.length, frames.length)
        assert.ok(found.every((frame, i) => frame.bytes.equals(frames[i] as Buffer)))
        assert.equal(one.midway, false)
      }),
      { numRuns: 60 },
    )
  })

  it("owns what it answers: later bytes do not change it", () => {
    const one = reader()
    const chunk = Buffer.from(frames[0] as Buffer)
    const [frame] = one.push(chunk)
    chunk.fill(0xff)
    assert.ok(frame?.bytes.equals(frames[0] as Buffer))
  })

  it("refuses every size below a header's", () => {
    for (let size = 0; size < headerBytes; size++) {
      const header = Buffer.alloc(headerBytes)
      header.writeUInt32LE(size, sizeAt)
      assert.throws(
        () => reader().push(header),
        (error) => error instanceof MillraceError && error.kind === "protocol",
      )
    }
  })

  it("throws the body of a frame above the limit away, byte by byte if need be, and goes on behind it", () => {
    const large = Buffer.alloc(5000)
    large.writeUInt32LE(5000, sizeAt)
    const both = Buffer.concat([large, frames[0] as Buffer])
    for (const step of [1, 999, both.length]) {
      const found: Frame[] = []
      const one = reader(1000)
      for (let at = 0; at < both.length; at += step) found.push(...one.push(both.subarray(at, at + step)))
      assert.deepEqual(
        found.map(({ bytes, sizeBytes }) => [bytes.length, sizeBytes]),
        [
          [headerBytes, 5000],
          [frames[0]?.length, frames[0]?.length],
        ],
      )
    }
  })

  it("makes no room for a body before its header was checked", () => {
    const header = Buffer.alloc(headerBytes)
    header.writeUInt32LE(0xffff_fff0, sizeAt)
    const strict = new FrameReader({
      mostBytes: 2 ** 33,
      check: () => {
        throw new MillraceError("protocol", "no")
      },
    })
    assert.throws(() => strict.push(header), /no/)
  })
})
