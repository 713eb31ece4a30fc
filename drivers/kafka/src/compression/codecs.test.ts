import assert from "node:assert/strict"
import { test } from "node:test"
import { gzipSync } from "node:zlib"
import { DecodeError, UnsupportedError } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import fc from "fast-check"
import { askOracle, oracleNeed } from "../protocol/oracle.test-support.ts"
import { type CodecName, codecCodes, compress, decompress } from "./codecs.ts"
import { lz4Frame, readLz4Frame } from "./lz4-frame.ts"
import { readSnappy, xerialSnappy } from "./snappy-stream.ts"
import { xxh32 } from "./xxh32.ts"

const codecs: readonly CodecName[] = ["gzip", "snappy", "lz4", "zstd"]
const limit = 1 << 20
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)

/** As the lz4 program (1.9.4, -9 -B4 -BD -BX --content-size) writes 5,000 times "0123456789abcdef": the second block reaches back into the first. */
const linkedFrame = Buffer.from(
  [
    "04224d185c4080380100000000005a1b010000ff01303132333435363738396162636465661000",
    "ff".repeat(256),
    "d850626364656653de5e9c420000000f1000",
    "ff".repeat(56),
    "a05062636465664b0af1ec000000001ffa8fcb",
  ].join(""),
  "hex",
)
const linkedContent = Buffer.from("0123456789abcdef".repeat(5_000))

test("what was compressed comes back, whatever it was", () => {
  const runs = fc.array(fc.tuple(fc.uint8Array({ minLength: 1, maxLength: 12 }), fc.integer({ min: 1, max: 3_000 })), {
    maxLength: 8,
  })
  fc.assert(
    fc.property(runs, fc.uint8Array({ maxLength: 400 }), (repeated, tail) => {
      const content = Buffer.concat([
        ...repeated.map(([bytes, times]) => Buffer.concat(Array(times).fill(bytes))),
        tail,
      ])
      for (const codec of codecs) {
        const again = decompress(codecCodes[codec], compress(codec, content), content.length)
        assert.equal(Buffer.compare(again, content), 0, codec)
      }
    }),
    { numRuns: 60 },
  )
})

test("an XXH32 is that of the specification", () => {
  // Of the reference implementation's own tests: nothing, one byte, and texts below and above a stripe.
  assert.equal(xxh32(bytesOf("")), 0x02cc5d05)
  assert.equal(xxh32(bytesOf("a")), 0x550d7456)
  assert.equal(xxh32(bytesOf("abc")), 0x32d153ff)
  assert.equal(xxh32(bytesOf("Nobody inspects the spammish repetition")), 0xe2293b2f)
})

test("an lz4 frame whose blocks depend on each other, with all of its checksums, is read", () => {
  assert.equal(Buffer.compare(readLz4Frame(linkedFrame, limit), linkedContent), 0)
})

test("a single altered byte of a frame with checksums is found", () => {
  for (let i = 0; i < linkedFrame.length; i++) {
    const altered = Buffer.from(linkedFrame)
    altered[i] = (altered[i] as number) ^ 0x10
    assert.throws(() => readLz4Frame(altered, limit), DecodeError, `byte ${i}`)
  }
})

test("forms of other writers are read", async (t) => {
  const reason = await oracleNeed()
  if (reason !== undefined) {
    t.skip(`needs kafka: ${reason}`)
    return
  }
  const random = seededRandom(11)
  const contents = [0, 1, 5, 13, 64, 70_000, 300_000].map((length) =>
    Buffer.from(Uint8Array.from({ length }, (_, i) => (random.uint32() % 5 === 0 ? random.uint32() : i >> 5) & 0xff)),
  )
  const forms = ["4", "5b", "7b", "4c", "6c"]
  const questions = contents.flatMap((content) => [
    ...forms.map((flags) => `lz4 ${flags} ${content.toString("hex")}`),
    `snappy ${content.toString("hex")}`,
  ])
  const answers = await askOracle(questions)
  for (const [i, answer] of answers.entries()) {
    const content = contents[Math.floor(i / (forms.length + 1))] as Buffer
    const question = (questions[i] as string).slice(0, 9)
    assert.match(answer, /^[0-9a-f]+$/, `${question}: ${answer}`)
    const read = question.startsWith("lz4") ? readLz4Frame : readSnappy
    assert.equal(Buffer.compare(read(Buffer.from(answer, "hex"), limit), content), 0, question)
  }
})

test("bytes that would become too many are refused before they are made", () => {
  const bomb = Buffer.alloc(8 << 20)
  for (const codec of codecs) {
    assert.throws(() => decompress(codecCodes[codec], compress(codec, bomb), limit), /more than 1048576/, codec)
  }
  // A length of nearly 4 GiB in front of nothing much.
  assert.throws(() => readSnappy(Uint8Array.of(0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1), limit), DecodeError)
})

test("a codec that nobody knows is named", () => {
  assert.throws(
    () => decompress(5, new Uint8Array(9)),
    (error) => error instanceof UnsupportedError && /codec 5/.test(error.message),
  )
})

test("truncated, altered and random bytes are refused or read, and nothing else", () => {
  const content = Buffer.from(
    "some text that repeats, some text that repeats, and then goes on to be different".repeat(3),
  )
  for (const codec of codecs) {
    const whole = compress(codec, content)
    for (let length = 0; length < whole.length; length++) refusedOrRead(codec, whole.subarray(0, length))
    fc.assert(
      fc.property(fc.nat(whole.length - 1), fc.nat(255), (at, value) => {
        const altered = Uint8Array.from(whole)
        altered[at] = value
        refusedOrRead(codec, altered)
      }),
      { numRuns: 300 },
    )
    fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => refusedOrRead(codec, bytes)))
  }
})

test("a cut frame of lz4 or a cut stream of blocks never passes for whole", () => {
  const content = Buffer.from("some text that repeats, some text that repeats".repeat(3))
  for (const [whole, read] of [
    [lz4Frame(content), readLz4Frame],
    [xerialSnappy(content), readSnappy],
    [gzipSync(content), (bytes: Uint8Array) => decompress(codecCodes.gzip, bytes)],
  ] as const) {
    for (let length = 17; length < whole.length; length++) {
      assert.throws(() => read(whole.subarray(0, length), limit), DecodeError, `${length} of ${whole.length}`)
    }
  }
})

function refusedOrRead(codec: CodecName, bytes: Uint8Array): void {
  try {
    assert.ok(decompress(codecCodes[codec], bytes, limit).length <= limit)
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error
  }
}
