import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { EnvelopeOpener } from "./envelope-opener.ts"
import { EnvelopeSealer } from "./envelope-sealer.ts"
import { KeyRing } from "./key-ring.ts"
import { context, keyOf, openSealed, place } from "./sealed-record.test-support.ts"
import { SubkeySequence, subkeyLimits } from "./subkey-sequence.ts"
import { decodeEnvelope } from "./webcrypto-decoder.test-support.ts"

const keys = { k1: keyOf(1) }
const ring = new KeyRing(keys, "k1")

test("a subkey ends after 2^32 records, which is all that the written counter holds, or 256 GiB", () => {
  assert.deepEqual(subkeyLimits, { records: 4_294_967_296, bytes: 274_877_906_944 })
})

test("behind the last record of a subkey comes a new salt, and the counter begins again", async () => {
  const sealer = new EnvelopeSealer(ring, context, { records: 3, bytes: 2 ** 38 })
  const opener = new EnvelopeOpener(ring, { acceptsPlain: false })
  const told: { salt: string; nonce: string }[] = []
  for (let n = 0; n < 8; n++) {
    const sealed = sealer.seal({ stream: "s", topic: `t${n % 2}` }, Uint8Array.of(n)) as Uint8Array
    told.push(await decodeEnvelope(sealed, { stream: "s", topic: `t${n % 2}` }, keys))
    assert.deepEqual(openSealed(opener, sealed, { stream: "s", topic: `t${n % 2}` })?.payload, Uint8Array.of(n))
  }
  assert.deepEqual(
    told.map(({ nonce }) => Number.parseInt(nonce, 16)),
    [0, 1, 2, 0, 1, 2, 0, 1],
  )
  assert.equal(new Set(told.map(({ salt }) => salt)).size, 3)
})

test("a subkey serves as many records as its limits allow, and no fewer", () => {
  const sequence = new SubkeySequence(ring.current, context.random, { records: 100, bytes: 10 })
  const counters = [4, 4, 4, 4, 2, 11, 1].map((bytes) => sequence.next(bytes))
  assert.deepEqual(counters, [0, 1, 0, 1, 2, 0, 0])
})

test("no pair of salt and counter comes twice, however large the records are", () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(40), { maxLength: 60 }),
      fc.record({ records: fc.integer({ min: 1, max: 9 }), bytes: fc.integer({ min: 1, max: 100 }) }),
      (sizes, limits) => {
        const sequence = new SubkeySequence(ring.current, context.random, limits)
        const seen = new Set<string>()
        let bytes = 0
        let prefix = sequence.prefix
        for (const size of sizes) {
          const counter = sequence.next(size)
          if (sequence.prefix !== prefix) bytes = 0
          prefix = sequence.prefix
          bytes += size
          assert.ok(counter < limits.records)
          assert.ok(bytes <= limits.bytes || counter === 0)
          seen.add(`${prefix.toString("hex")} ${counter}`)
        }
        assert.equal(seen.size, sizes.length)
      },
    ),
  )
})

test("an opener keeps a bounded number of subkeys, and reads on behind it", () => {
  const opener = new EnvelopeOpener(ring, { acceptsPlain: false })
  const first = new EnvelopeSealer(ring, context).seal(place, Uint8Array.of(1))
  openSealed(opener, first)
  for (let n = 0; n < 1100; n++) openSealed(opener, new EnvelopeSealer(ring, context).seal(place, Uint8Array.of(2)))
  assert.deepEqual(openSealed(opener, first)?.payload, Uint8Array.of(1))
})
