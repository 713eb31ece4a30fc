import assert from "node:assert/strict"
import { webcrypto } from "node:crypto"
import { describe, test } from "node:test"
import { DecodeError, Headers, InvalidError, RecordTooLargeError } from "@millrace/contract"
import fc from "fast-check"
import { iggyEncryptor } from "./iggy-encryptor.ts"
import { mostRandomNonces } from "./key-use.ts"
import { context, keyOf, limits, openSealed, place, record } from "./sealed-record.test-support.ts"

const { subtle } = webcrypto
const text = new TextEncoder()
const key = keyOf(7)
const iggy = iggyEncryptor({ key })

/** What Apache Iggy's client makes of a payload: nonce, ciphertext, tag; no associated data. */
async function foreignDecrypt(sealed: Uint8Array): Promise<Uint8Array> {
  const imported = await subtle.importKey("raw", new Uint8Array(key), "AES-GCM", false, ["decrypt"])
  const bytes = new Uint8Array(sealed)
  const plain = await subtle.decrypt({ name: "AES-GCM", iv: bytes.slice(0, 12) }, imported, bytes.slice(12))
  return new Uint8Array(plain)
}

async function foreignEncrypt(plain: Uint8Array): Promise<Uint8Array> {
  const imported = await subtle.importKey("raw", new Uint8Array(key), "AES-GCM", false, ["encrypt"])
  const iv = webcrypto.getRandomValues(new Uint8Array(12))
  const sealed = await subtle.encrypt({ name: "AES-GCM", iv }, imported, new Uint8Array(plain))
  return Buffer.concat([iv, new Uint8Array(sealed)])
}

describe("the format of Apache Iggy's clients", () => {
  test("is read by another implementation, and reads it", async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (payload) => {
        const sealed = iggy.sealer(context).seal(place, payload) as Uint8Array
        assert.equal(sealed.length, payload.length + 28)
        assert.deepEqual(await foreignDecrypt(sealed), payload)
        assert.deepEqual(openSealed(iggy.opener(), await foreignEncrypt(payload))?.payload, payload)
      }),
      { numRuns: 50 },
    )
  })

  test("an altered bit, a truncation, another key, a plain record: each is an error", () => {
    const sealed = iggy.sealer(context).seal(place, text.encode("payload")) as Uint8Array
    for (let bit = 0; bit < sealed.length * 8; bit++) {
      const altered = Uint8Array.from(sealed)
      altered[bit >> 3] = (altered[bit >> 3] as number) ^ (1 << (bit & 7))
      assert.throws(() => openSealed(iggy.opener(), altered), DecodeError)
    }
    for (let length = 0; length < sealed.length; length++) {
      assert.throws(() => openSealed(iggy.opener(), sealed.slice(0, length)), DecodeError)
    }
    assert.throws(() => openSealed(iggyEncryptor({ key: keyOf(8) }).opener(), sealed), DecodeError)
    assert.throws(
      () => openSealed(iggy.opener(), text.encode("a plain record that is long enough for a tag")),
      DecodeError,
    )
    assert.throws(() => openSealed(iggy.opener(), record({ payload: null })), DecodeError)
  })

  test("what it has no place for is refused, by name", () => {
    const sealer = iggy.sealer(context)
    const headers = Headers.from({ h: "v" })
    const says = (pattern: RegExp) => (error: unknown) => error instanceof InvalidError && pattern.test(error.message)
    assert.throws(() => sealer.seal(place, record({ payload: text.encode("p"), headers })), says(/headers \("h"\)/))
    assert.throws(() => sealer.seal(place, record({ payload: null })), says(/tombstone/))
    assert.throws(() => sealer.seal(place, new Uint8Array(limits.payloadBytes)), RecordTooLargeError)
  })

  test("headers that its clients have encrypted are told, and the payload is read", () => {
    const payload = iggy.sealer(context).seal(place, text.encode("p")) as Uint8Array
    const opened = iggy.opener().open(place, {
      payload,
      headers: () => {
        throw new DecodeError("the headers of a record end in the middle of an entry")
      },
    })
    assert.deepEqual(opened?.payload, text.encode("p"))
    assert.ok(opened?.headers instanceof DecodeError)
  })

  test("a record that comes back from a failed publish is known", () => {
    const sealer = iggy.sealer(context)
    assert.equal(sealer.isSealed(place, sealer.seal(place, text.encode("p"))), true)
    assert.equal(sealer.isSealed(place, text.encode("a plain record that is long enough for a tag")), false)
    assert.equal(sealer.isSealed(place, record({ payload: null })), false)
  })

  test("its nonces are random, so that it stops at its limit, which all users of the key in a process share", () => {
    assert.equal(mostRandomNonces, 4_294_967_296)
    const worn = keyOf(33)
    const first = iggyEncryptor({ key: worn, maxRecords: 3 }).sealer(context)
    const second = iggyEncryptor({ key: worn.slice(), maxRecords: 3 }).sealer(context)
    const nonces = new Set(
      [first, second, first].map((sealer) => nonceOf(sealer.seal(place, text.encode("p")) as Uint8Array)),
    )
    assert.equal(nonces.size, 3)
    for (const sealer of [first, second]) {
      assert.throws(
        () => sealer.seal(place, text.encode("p")),
        (error: unknown) =>
          error instanceof InvalidError &&
          /encrypted 3 records under this key, and its limit is 3.*Take a new key/.test(error.message) &&
          error.context.limitRecords === 3,
      )
    }
    assert.ok(
      iggyEncryptor({ key: keyOf(34), maxRecords: 3 })
        .sealer(context)
        .seal(place, text.encode("p")),
    )
  })

  test("options are checked", () => {
    for (const options of [
      undefined,
      {},
      { key: "x".repeat(32) },
      { key: new Uint8Array(16) },
      { key, maxRecords: 0 },
      { key, maxRecords: 2 ** 32 + 1 },
      { key, nonce: 1 },
    ]) {
      assert.throws(() => iggyEncryptor(options as never), InvalidError)
    }
  })
})

function nonceOf(sealed: Uint8Array): string {
  return Buffer.from(sealed.subarray(0, 12)).toString("hex")
}
