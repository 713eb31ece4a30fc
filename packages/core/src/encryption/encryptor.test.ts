import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { inspect } from "node:util"
import {
  DecodeError,
  Headers,
  HeaderValue,
  headerKindCodes,
  InvalidError,
  RecordTooLargeError,
} from "@millrace/contract"
import fc from "fast-check"
import type { PreparedRecord, SendableRecord } from "../record/outgoing-record.ts"
import { encryptor, type OpenedContent } from "./encryptor.ts"
import { sealedHeader } from "./envelope.ts"
import {
  anyRecord,
  context,
  keyOf,
  limits,
  listed,
  openSealed,
  place,
  record,
  seeded,
} from "./sealed-record.test-support.ts"
import { checkEncryptor } from "./sealing.ts"
import { decodeEnvelope } from "./webcrypto-decoder.test-support.ts"

const keys = { k1: keyOf(1), ключ: keyOf(2) }
const one = encryptor({ current: "k1", keys })
const other = encryptor({ current: "ключ", keys })
const text = new TextEncoder()

function contentOf(plain: SendableRecord): { payload: Uint8Array | null; headers: ReturnType<typeof listed> } {
  return plain instanceof Uint8Array
    ? { payload: plain, headers: [] }
    : { payload: plain.payload, headers: listed(plain.headers) }
}

function listedContent(opened: OpenedContent | undefined): ReturnType<typeof contentOf> {
  assert.ok(opened?.headers instanceof Headers)
  return { payload: opened.payload, headers: listed(opened.headers) }
}

/** The envelope of a sealed record. */
function envelopeOf(sealed: SendableRecord): Uint8Array {
  if (sealed instanceof Uint8Array) return sealed
  if (sealed.payload !== null) return sealed.payload
  return Buffer.concat(sealed.headers.getAll(sealedHeader).map((piece) => piece.bytes))
}

/** The same record with another envelope. */
function withEnvelope(sealed: SendableRecord, envelope: Uint8Array): SendableRecord {
  if (sealed instanceof Uint8Array) return envelope
  if (sealed.payload !== null) return { ...sealed, payload: envelope }
  return { ...sealed, headers: Headers.from([[sealedHeader, HeaderValue.raw(envelope)]]) }
}

function decodeFails(opened: () => unknown, says: RegExp): void {
  assert.throws(opened, (error: unknown) => {
    assert.ok(error instanceof DecodeError, String(error))
    assert.match(error.message, says)
    return true
  })
}

describe("an encrypted record", () => {
  test("opens to what it was, with any encryptor that has its key", () => {
    fc.assert(
      fc.property(anyRecord, fc.boolean(), (plain, first) => {
        const sealed = (first ? one : other).sealer(context).seal(place, plain)
        assert.deepEqual(listedContent(openSealed(one.opener(), sealed)), contentOf(plain))
      }),
    )
  })

  test("keeps key, id, time and partition, and shows neither payload nor header names nor values", () => {
    const plain = record({
      payload: text.encode("a secret that is long"),
      key: text.encode("ann"),
      headers: Headers.from({ "secret-name": "secret-value" }),
      id: 5n,
      timestampMicros: 7n,
      partition: 3,
    })
    const sealed = one.sealer(context).seal(place, plain) as PreparedRecord
    assert.deepEqual({ ...sealed, payload: null }, { ...plain, payload: null, headers: Headers.empty })
    assert.doesNotMatch(Buffer.from(sealed.payload as Uint8Array).toString("latin1"), /secret/)
  })

  test("a tombstone stays one, with its headers encrypted, in pieces that the backend takes", () => {
    const plain = record({ payload: null, key: text.encode("ann"), headers: Headers.from({ why: "x".repeat(600) }) })
    const sealed = one.sealer(context).seal(place, plain) as PreparedRecord
    assert.equal(sealed.payload, null)
    assert.ok(sealed.headers.size > 1)
    for (const [name, value] of sealed.headers) {
      assert.equal(name, "millrace-sealed")
      assert.ok(value.bytes.length <= limits.headerValueBytes)
    }
    assert.deepEqual(listedContent(openSealed(one.opener(), sealed)), contentOf(plain))
  })

  test("is read by a second implementation, made from the documented layout", async () => {
    await fc.assert(
      fc.asyncProperty(anyRecord, fc.string(), async (plain, topic) => {
        const at = { stream: "Strom ü", topic: topic.toWellFormed() }
        const decoded = await decodeEnvelope(envelopeOf(other.sealer(context).seal(at, plain)), at, keys)
        assert.equal(decoded.keyId, "ключ")
        const expected = contentOf(plain)
        assert.deepEqual(decoded.payload, expected.payload && new Uint8Array(expected.payload))
        assert.deepEqual(
          decoded.headers.map(({ name, kind, value }) => [name, kind, [...value]]),
          expected.headers.map(([name, kind, value]) => [
            name,
            headerKindCodes[kind as keyof typeof headerKindCodes],
            value,
          ]),
        )
      }),
      { numRuns: 50 },
    )
  })

  test("an altered bit anywhere is an error, never another record", () => {
    for (const plain of [
      text.encode("payload"),
      record({ payload: text.encode("p"), headers: Headers.from({ h: "v" }) }),
      record({ payload: null }),
    ]) {
      const sealed = one.sealer(context).seal(place, plain)
      const envelope = envelopeOf(sealed)
      const opener = one.opener()
      for (let bit = 0; bit < envelope.length * 8; bit++) {
        const altered = Uint8Array.from(envelope)
        altered[bit >> 3] = (altered[bit >> 3] as number) ^ (1 << (bit & 7))
        assert.throws(() => openSealed(opener, withEnvelope(sealed, altered)), DecodeError, `bit ${bit}`)
      }
      assert.deepEqual(listedContent(openSealed(opener, sealed)), contentOf(plain), "and the opener goes on")
    }
  })

  test("every truncation and every extension is an error", () => {
    for (const plain of [text.encode("payload"), record({ payload: null, headers: Headers.from({ h: "v" }) })]) {
      const sealed = one.sealer(context).seal(place, plain)
      const envelope = envelopeOf(sealed)
      const opener = one.opener()
      openSealed(opener, sealed)
      for (let length = 0; length < envelope.length; length++) {
        const cut = withEnvelope(sealed, envelope.slice(0, length))
        decodeFails(
          () => openSealed(opener, cut),
          length < 44 && length > 3 ? /version|cut off after \d+ bytes/ : /not encrypted|tag does not fit/,
        )
        assert.throws(() => openSealed(one.opener(), cut), DecodeError, `${length} bytes, afresh`)
      }
      assert.throws(
        () => openSealed(opener, withEnvelope(sealed, Buffer.concat([envelope, Buffer.alloc(1)]))),
        DecodeError,
      )
    }
  })

  test("arbitrary bytes, and arbitrary bytes behind a good start, are errors", () => {
    const good = envelopeOf(one.sealer(context).seal(place, new Uint8Array(30)))
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 120 }), fc.nat(good.length - 1), (bytes, keep) => {
        const opener = one.opener()
        assert.throws(() => openSealed(opener, bytes), DecodeError)
        assert.throws(() => openSealed(opener, Buffer.concat([good.subarray(0, keep), bytes])), DecodeError)
      }),
    )
  })

  test("a copy in another topic does not decrypt, whatever the names share", () => {
    const sealed = one.sealer(context).seal({ stream: "ab", topic: "c" }, text.encode("p"))
    const opener = one.opener()
    for (const topic of [
      { stream: "a", topic: "bc" },
      { stream: "ab", topic: "d" },
      { stream: "", topic: "abc" },
      { stream: "c", topic: "ab" },
    ]) {
      decodeFails(() => openSealed(opener, sealed, topic), /another stream or topic/)
    }
    assert.ok(openSealed(opener, sealed, { stream: "ab", topic: "c" }))
  })

  test("a tombstone's envelope is no payload, and the other way round", () => {
    const sealer = one.sealer(context)
    const tombstone = envelopeOf(sealer.seal(place, record({ payload: null })))
    const payload = envelopeOf(sealer.seal(place, new Uint8Array(0)))
    decodeFails(() => openSealed(one.opener(), tombstone), /other kind/)
    const forged = record({ payload: null, headers: Headers.from([[sealedHeader, HeaderValue.raw(payload)]]) })
    decodeFails(() => openSealed(one.opener(), forged), /other kind/)
  })

  test("a wrong key and an unknown key id are told apart", () => {
    const sealed = one.sealer(context).seal(place, text.encode("p"))
    const wrong = encryptor({ current: "k1", keys: { k1: keyOf(9) } })
    decodeFails(() => openSealed(wrong.opener(), sealed), /tag does not fit.*"k1"/)
    const unknown = encryptor({ current: "k9", keys: { k9: keyOf(1) } })
    decodeFails(() => openSealed(unknown.opener(), sealed), /"k1" is not among the encryptor's: "k9"/)
  })

  test("another version is named", () => {
    const envelope = Uint8Array.from(envelopeOf(one.sealer(context).seal(place, text.encode("p"))))
    envelope[3] = 2
    decodeFails(() => openSealed(one.opener(), envelope), /version 2.*reads version 1/)
  })

  test("headers that somebody added beside the envelope are not shown", () => {
    const sealed = one.sealer(context).seal(place, record({ payload: text.encode("p") })) as PreparedRecord
    const opened = openSealed(one.opener(), { ...sealed, headers: Headers.from({ admin: "true" }) })
    assert.deepEqual(listedContent(opened).headers, [])
  })
})

describe("keys", () => {
  test("rotate: the new one encrypts, the old one still decrypts, a dropped one does not", () => {
    const before = encryptor({ current: "k1", keys: { k1: keyOf(1) } })
    const during = encryptor({ current: "k2", keys: { k1: keyOf(1), k2: keyOf(2) } })
    const after = encryptor({ current: "k2", keys: { k2: keyOf(2) } })
    const old = before.sealer(context).seal(place, text.encode("old"))
    const fresh = during.sealer(context).seal(place, text.encode("new"))
    const opener = during.opener()
    for (let turn = 0; turn < 3; turn++) {
      assert.deepEqual(openSealed(opener, old)?.payload, text.encode("old"))
      assert.deepEqual(openSealed(opener, fresh)?.payload, text.encode("new"))
    }
    assert.deepEqual(openSealed(after.opener(), fresh)?.payload, text.encode("new"))
    assert.throws(() => openSealed(after.opener(), old), DecodeError)
  })

  test("are copied, and show in no log", () => {
    const key = keyOf(0x41)
    const encrypts = encryptor({ current: "k", keys: { k: key } })
    key.fill(0)
    const sealed = encrypts.sealer(context).seal(place, text.encode("p"))
    assert.ok(openSealed(encryptor({ current: "k", keys: { k: keyOf(0x41) } }).opener(), sealed))
    const shown = inspect(encrypts, { depth: 9, showHidden: true }) + JSON.stringify(encrypts)
    assert.doesNotMatch(shown, /AAAA|41 41|0x41|65, 65/)
  })

  test("are refused when they cannot be right, without being shown", () => {
    const refuse = (options: unknown, says: RegExp): void =>
      assert.throws(
        () => encryptor(options as never),
        (error: unknown) => error instanceof InvalidError && says.test(error.message),
      )
    const k = keyOf(1)
    refuse({ current: "k", keys: { k: new Uint8Array(31) } }, /key "k" has 31 bytes; it must have 32/)
    refuse({ current: "k", keys: { k: "x".repeat(32) } }, /key "k" must be a Uint8Array of 32 bytes, not string/)
    refuse({ current: "x", keys: { k } }, /"current" is "x".*one of its keys: "k"/)
    refuse({ current: "k", keys: {} }, /there are none/)
    refuse({ current: "k" }, /"keys" is undefined/)
    refuse({ current: "k", keys: "c2VjcmV0" }, /"keys" is a string;/)
    refuse({ keys: { k } }, /"current" is undefined/)
    refuse({ current: "", keys: { "": k } }, /key id "" has 0 bytes/)
    refuse({ current: "k", keys: { k, ["ü".repeat(33)]: k } }, /has 66 bytes; it must have 1 to 64/)
    refuse({ current: "k", keys: { k, "\ud800": k } }, /key id/)
    refuse({ current: "k", keys: { k }, algorithm: "rot13" }, /unknown option "algorithm"/)
    refuse({ current: "k", keys: { k }, plain: true }, /"plain" is true/)
    refuse(undefined, /encryptor/)
    assert.throws(() => checkEncryptor("connect", "c2VjcmV0" as never), /"encryptor" is a string;/)
    refuse({ current: "__proto__", keys: { k } }, /"current"/)
  })
})

describe("plain records under an encryptor", () => {
  test("are errors, and are read as they are when that is asked for", () => {
    const plain = record({ payload: text.encode("plain"), headers: Headers.from({ h: "v" }) })
    decodeFails(() => openSealed(one.opener(), plain), /not encrypted.*"plain"/)
    decodeFails(() => openSealed(one.opener(), record({ payload: null })), /not encrypted/)
    const lenient = encryptor({ current: "k1", keys, plain: "accept" })
    assert.equal(openSealed(lenient.opener(), plain), undefined)
    assert.equal(openSealed(lenient.opener(), record({ payload: null })), undefined)
    const sealed = lenient.sealer(context).seal(place, plain)
    assert.deepEqual(listedContent(openSealed(lenient.opener(), sealed)), contentOf(plain))
  })
})

describe("a record that comes back from a failed publish", () => {
  test("is known as encrypted, and whatever is not is not", () => {
    fc.assert(
      fc.property(anyRecord, (plain) => {
        const sealer = one.sealer(context)
        assert.equal(sealer.isSealed(place, plain), false)
        const sealed = sealer.seal(place, plain)
        assert.equal(one.sealer(context).isSealed(place, sealed), true)
      }),
    )
  })

  test("of a producer with other keys is left as it is", () => {
    const sealed = encryptor({ current: "k9", keys: { k9: keyOf(9) } })
      .sealer(context)
      .seal(place, text.encode("p"))
    assert.equal(one.sealer(context).isSealed(place, sealed), true)
  })

  test("of another topic is refused", () => {
    const sealed = one.sealer(context).seal({ stream: "shop", topic: "bills" }, text.encode("p"))
    assert.throws(
      () => one.sealer(context).isSealed(place, sealed),
      (error: unknown) =>
        error instanceof InvalidError && /topic "shop\/orders".*resend it to the topic/.test(error.message),
    )
  })

  test("bytes that only begin like an envelope are encrypted like any others", () => {
    const sealer = one.sealer(context)
    const envelope = sealer.seal(place, text.encode("p")) as Uint8Array
    assert.equal(sealer.isSealed(place, envelope.slice(0, 30)), false)
    assert.equal(sealer.isSealed(place, record({ payload: envelope, headers: Headers.from({ h: "v" }) })), false)
    assert.equal(sealer.isSealed(place, record({ payload: null, headers: Headers.from({ h: "v" }) })), false)
  })
})

describe("sizes", () => {
  test("count what is sent: the payload with its envelope", () => {
    const sealer = one.sealer(context)
    const overhead = (sealer.seal(place, new Uint8Array(0)) as Uint8Array).length
    assert.equal(overhead, 42 + 2)
    assert.ok(sealer.seal(place, new Uint8Array(limits.payloadBytes - overhead)))
    assert.throws(
      () => sealer.seal(place, new Uint8Array(limits.payloadBytes - overhead + 1)),
      (error: unknown) =>
        error instanceof RecordTooLargeError &&
        error.context.sizeBytes === limits.payloadBytes + 1 &&
        error.context.limitBytes === limits.payloadBytes,
    )
  })

  test("a tombstone's headers count against the limit of headers", () => {
    const headers = Headers.from({ h: HeaderValue.raw(new Uint8Array(limits.headersBytes)) })
    assert.throws(() => one.sealer(context).seal(place, record({ payload: null, headers })), RecordTooLargeError)
  })
})

describe("nonces", () => {
  test("never come twice under a subkey, over topics; and two producers have two subkeys", async () => {
    const sealers = [one.sealer(context), one.sealer(context)]
    const seen = new Set<string>()
    const salts = new Set<string>()
    for (let n = 0; n < 60; n++) {
      const topic = { stream: "s", topic: `t${n % 3}` }
      for (const sealer of sealers) {
        const envelope = envelopeOf(sealer.seal(topic, n % 4 === 0 ? record({ payload: null }) : new Uint8Array(n)))
        const { salt, nonce } = await decodeEnvelope(envelope, topic, keys)
        salts.add(salt)
        seen.add(`${salt} ${nonce}`)
      }
    }
    assert.equal(seen.size, 120)
    assert.equal(salts.size, 2)
  })

  test("equal records differ, also of producers that are seeded alike, in all but that", () => {
    const sealer = one.sealer(seeded(1))
    const first = sealer.seal(place, text.encode("p"))
    assert.notDeepEqual(sealer.seal(place, text.encode("p")), first)
    assert.deepEqual(one.sealer(seeded(1)).seal(place, text.encode("p")), first, "chance is the context's alone")
    assert.notDeepEqual(one.sealer(seeded(2)).seal(place, text.encode("p")), first)
  })
})
