/** Typed sends: values as records, what their headers say, and what has no encoding (cases; tables 1.11 and 1.12). */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  Headers,
  HeaderValue,
  InvalidError,
  MillraceError,
  RecordTooLargeError,
  UnsupportedError,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { type Client, openClient } from "../client/client.ts"
import type { Topic } from "../client/topic.ts"
import type { Codec } from "../codec/codec.ts"
import { Json } from "../codec/json.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { iggyEncryptor } from "../encryption/iggy-encryptor.ts"
import { FakeBackend } from "../producer/fake-backend.test-support.ts"
import type { ProducerOptions } from "../producer/producer-options.ts"
import { PublishFailedError } from "../producer/publish-failed.ts"
import type { RecordMetadata } from "../record/metadata.ts"
import type { TypedTopicOptions } from "./record-encoder.ts"
import type { TypedProducer } from "./typed-producer.ts"
import type { TypedTopic } from "./typed-topic.ts"

type Value = { readonly n: number } | "cyclic" | "promise" | "no bytes"

const utf8 = new TextEncoder()
const cause = new TypeError("it bites its tail")

/** JSON, but for the values that say otherwise. */
const codec: Codec<Value> = {
  name: "JSON",
  contentType: "json",
  encode(value) {
    if (value === "cyclic") throw cause
    if (value === "promise") return Promise.reject(new Error("late")) as never
    if (value === "no bytes") return "text" as never
    return utf8.encode(JSON.stringify(value))
  },
  decode: (payload) => JSON.parse(new TextDecoder().decode(payload)),
}

interface Rig {
  readonly backend: FakeBackend
  readonly clock: VirtualClock
  readonly client: Client
  readonly topic: Topic
}

function rig(encryptor?: Encryptor): Rig {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock)
  backend.create("t")
  const options = encryptor === undefined ? {} : { encryptor }
  const client = openClient(backend.session, options, { clock, random: seededRandom(3) })
  return { backend, clock, client, topic: client.stream("s").topic("t") }
}

function typed<T>(topic: Topic, of: Codec<T>, options?: TypedTopicOptions): TypedTopic<T> {
  return topic.typed(of, options)
}

/** Payload and headers of each stored record, on one line. */
function stored({ backend }: Rig): string[] {
  return backend.records("t").map(({ payload, headers }) => {
    const text = payload === null ? "null" : Buffer.from(payload).toString()
    return [text, ...Array.from(headers, ([name, { value }]) => `${name}=${String(value)}`)].join(" ")
  })
}

async function settled<V>({ clock }: Rig, call: Promise<V>): Promise<V> {
  let done = false
  const over = call.finally(() => {
    done = true
  })
  over.catch(() => {})
  for (let turns = 0; !done && turns < 1000; turns++) await clock.advance(10)
  return await over
}

/** Every call that sends one value. */
const singles: Readonly<Record<string, (producer: TypedProducer<Value>, value: Value | null) => Promise<unknown>>> = {
  send: (producer, value) => producer.send(value),
  sendTo: (producer, value) => producer.sendTo({ stream: "s", name: "t" }, value),
  sendAndConfirm: (producer, value) => producer.sendAndConfirm(value),
  enqueue: async (producer, value) => (await producer.enqueue({ value })).delivery,
  sendBatch: (producer, value) => producer.sendBatch([value]),
  sendRecords: (producer, value) => producer.sendRecords([{ value }]),
}
const kinds: Readonly<Record<string, ProducerOptions>> = { direct: {}, background: { background: true } }

for (const [kind, options] of Object.entries(kinds)) {
  for (const [call, send] of Object.entries(singles)) {
    describe(`a ${kind} typed producer, by ${call}`, () => {
      test("sends values with their content type, and null as a tombstone past the codec (A-17)", async () => {
        const rigged = rig()
        const producer = typed(rigged.topic, codec).producer(options)
        await settled(rigged, Promise.all([send(producer, { n: 1 }), send(producer, null), send(producer, { n: 2 })]))
        await settled(rigged, producer.shutdown())
        assert.deepEqual(stored(rigged), ['{"n":1} millrace-ct=1', "null", '{"n":2} millrace-ct=1'])
        await settled(rigged, rigged.client.close())
      })

      for (const [value, why] of [
        ["cyclic", /does not encode as JSON: it bites its tail$/],
        ["promise", /must give a Uint8Array at once/],
        ["no bytes", /must give a Uint8Array at once, not "text"/],
      ] as const) {
        test(`rejects a value that does not encode (${value}), and that one alone`, async () => {
          const rigged = rig()
          const producer = typed(rigged.topic, codec).producer(options)
          const before = send(producer, { n: 1 })
          const refused = assert.rejects(
            send(producer, value),
            (error) => error instanceof InvalidError && error.outcome === "rejected" && why.test(error.message),
          )
          await settled(rigged, Promise.all([before, refused, send(producer, { n: 2 })]))
          await settled(rigged, producer.shutdown())
          assert.deepEqual(stored(rigged), ['{"n":1} millrace-ct=1', '{"n":2} millrace-ct=1'])
          await settled(rigged, rigged.client.close())
        })
      }
    })
  }
}

describe("a batch of values", () => {
  test("with one that does not encode names it, and nothing is sent", async () => {
    const rigged = rig()
    const producer = typed(rigged.topic, codec).producer()
    for (const sent of [
      producer.sendBatch([{ n: 0 }, { n: 1 }, "cyclic"]),
      producer.sendRecords([{ value: { n: 0 } }, { value: { n: 1 } }, { value: "cyclic" }]),
    ]) {
      await assert.rejects(sent, (error) => {
        assert.ok(error instanceof InvalidError)
        return /^record #2: the value does not encode as JSON: it bites its tail$/.test(error.message)
      })
    }
    await assert.rejects(producer.sendBatch("no array" as never), InvalidError)
    await assert.rejects(
      producer.sendRecords([{ n: 1 } as never]),
      /record #0: a typed record must be an object with a value/,
    )
    assert.deepEqual(stored(rigged), [])
    await settled(rigged, rigged.client.close())
  })

  test("keeps what is each record's own: key, headers, id and time (seed 002)", async () => {
    const rigged = rig()
    const producer = typed(rigged.topic, codec).producer()
    const sent = producer.sendRecords([
      { value: { n: 1 }, key: "k", id: 7n, timestampMicros: 5n, headers: { a: "1" } },
      { value: null, key: "k" },
      { value: { n: 3 }, metadata: { index: { host: "h" } } },
    ])
    await settled(rigged, sent)
    assert.deepEqual(stored(rigged), ['{"n":1} a=1 millrace-ct=1', "null", '{"n":3} millrace-ct=1 millrace-idx.host=h'])
    const [first] = rigged.backend.records("t")
    assert.deepEqual([first?.id, first?.timestampMicros, Buffer.from(first?.key ?? []).toString()], [7n, 5n, "k"])
    await settled(rigged, rigged.client.close())
  })

  test("whose library is missing says so, and is no fault of a record", async () => {
    const rigged = rig()
    const missing: Codec<number> = {
      ...(codec as Codec<never>),
      encode: () => {
        throw new UnsupportedError("install it")
      },
    }
    const producer = typed(rigged.topic, missing).producer()
    await assert.rejects(producer.sendBatch([1]), (error) => error instanceof UnsupportedError)
    await assert.rejects(producer.send(1), (error) => error instanceof UnsupportedError)
    await settled(rigged, rigged.client.close())
  })
})

describe("headers of a typed send", () => {
  const three = [
    ["a", "1"],
    ["b", "x"],
    ["a", "2"],
  ] as const

  test("repeat in their order (A-19), with Millrace's own behind them", async () => {
    const rigged = rig()
    const topic = typed(rigged.topic, codec)
    const producer = topic.producer()
    const options = { headers: three }
    await settled(rigged, producer.send({ n: 1 }, options))
    await settled(rigged, producer.sendBatch([{ n: 2 }]))
    await settled(
      rigged,
      producer.sendRecords([
        { value: { n: 3 }, ...options },
        { value: null, ...options },
      ]),
    )
    await settled(rigged, producer.sendAndConfirm({ n: 4 }, options))
    const enqueued = async (): Promise<unknown> => (await producer.enqueue({ value: { n: 5 }, ...options })).delivery
    await settled(rigged, enqueued())
    await settled(rigged, topic.publish({ n: 6 }, options))
    const own = " a=1 b=x a=2 millrace-ct=1"
    assert.deepEqual(stored(rigged), [
      `{"n":1}${own}`,
      '{"n":2} millrace-ct=1',
      `{"n":3}${own}`,
      "null a=1 b=x a=2",
      `{"n":4}${own}`,
      `{"n":5}${own}`,
      `{"n":6}${own}`,
    ])
    await settled(rigged, rigged.client.close())
  })

  test("that are Millrace's own are refused by name, by every call", async () => {
    const rigged = rig()
    const topic = typed(rigged.topic, codec)
    const producer = topic.producer()
    const options = { headers: { "millrace-sid": HeaderValue.uint32(1) } }
    const reserved = /header "millrace-sid" is reserved/
    await assert.rejects(producer.send({ n: 1 }, options), reserved)
    await assert.rejects(producer.send(null, options), reserved)
    await assert.rejects(producer.sendRecords([{ value: { n: 1 }, ...options }]), reserved)
    await assert.rejects(producer.enqueue({ value: { n: 1 }, ...options }), reserved)
    await assert.rejects(topic.publish({ n: 1 }, options), reserved)
    await assert.rejects(producer.send({ n: 1 }, { key: "k", retries: 1 } as never), /"retries"/)
    assert.deepEqual(stored(rigged), [])
    await settled(rigged, rigged.client.close())
  })

  test("say what the codec says of the payload: schema id, fingerprint", async () => {
    const rigged = rig()
    const described: Codec<Value> = { ...codec, contentType: "avro", describe: () => ({ schemaId: 42 }) }
    const arrow: Codec<Value> = {
      ...codec,
      contentType: "arrow",
      describe: () => ({ schemaFingerprint: new Uint8Array(32).fill(9) }),
    }
    for (const one of [described, arrow]) {
      const topic = typed(rigged.topic, one)
      await settled(rigged, topic.publish({ n: 1 }))
      const producer = topic.producer()
      await settled(rigged, producer.send({ n: 2 }))
      await settled(rigged, producer.sendBatch([{ n: 3 }, null]))
      await settled(rigged, topic.publishBatch().addValue({ n: 4 }).addValue(null).send())
    }
    const said = stored(rigged).map((line) =>
      line
        .split(" ")
        .slice(1)
        .map((header) => header.split("=")[0]),
    )
    const sid = ["millrace-ct", "millrace-sid"]
    const sfp = ["millrace-ct", "millrace-sfp"]
    assert.deepEqual(said, [sid, sid, sid, [], sid, [], sfp, sfp, sfp, [], sfp, []])
    assert.match(stored(rigged)[0] ?? "", /millrace-ct=5 millrace-sid=42/)
    await settled(rigged, rigged.client.close())
  })

  test("say nothing with `describe: false`, but what a reader needs; metadata of the send is said all the same", async () => {
    const rigged = rig()
    const plain = typed(rigged.topic, codec, { describe: false })
    await settled(rigged, plain.publish({ n: 1 }))
    await settled(rigged, plain.producer().send({ n: 2 }))
    await settled(rigged, plain.publish({ n: 3 }, { metadata: { correlation: "c" } }))
    const described: Codec<Value> = { ...codec, describe: (): RecordMetadata => ({ schemaId: 1 }) }
    await settled(rigged, typed(rigged.topic, described, { describe: false }).publish({ n: 4 }))
    assert.deepEqual(stored(rigged), [
      '{"n":1}',
      '{"n":2}',
      '{"n":3} millrace-corr=c',
      '{"n":4} millrace-ct=1 millrace-sid=1',
    ])
    assert.throws(() => typed(rigged.topic, codec, { describe: 1 as never }), /"describe"/)
    await settled(rigged, rigged.client.close())
  })

  test("are left out where the encryption has no room for them", async () => {
    const rigged = rig(iggyEncryptor({ key: new Uint8Array(32).fill(1) }))
    await settled(rigged, typed(rigged.topic, codec).publish({ n: 1 }))
    await settled(rigged, typed(rigged.topic, codec).producer().send({ n: 1 }))
    const clear = typed(rigged.topic, codec).producer({ encryptor: false })
    await settled(rigged, clear.send({ n: 3 }))
    assert.deepEqual(
      rigged.backend.records("t").map(({ headers }) => Headers.from(headers).size),
      [0, 0, 1],
    )
    await settled(rigged, rigged.client.close())
  })
})

test("a typed batch has everything that a batch can say, and a value that does not encode is refused by its number", async () => {
  const rigged = rig()
  const topic = typed(rigged.topic, codec)
  const batch = topic
    .publishBatch()
    .header("h", "1")
    .schemaId(3)
    .addValue({ n: 1 })
    .addValue({ n: 2 }, { metadata: { schemaId: 4 }, headers: { h: "2" } })
    .extendValues([null, { n: 3 }])
  assert.equal(batch.count, 4)
  await settled(rigged, batch.send())
  assert.deepEqual(stored(rigged), [
    '{"n":1} h=1 millrace-ct=1 millrace-sid=3',
    '{"n":2} h=2 millrace-ct=1 millrace-sid=4',
    "null h=1 millrace-sid=3",
    '{"n":3} h=1 millrace-ct=1 millrace-sid=3',
  ])
  await assert.rejects(topic.publishBatch().addValue({ n: 1 }).addValue("cyclic").send(), /^InvalidError: record #1: /)
  assert.equal(stored(rigged).length, 4)
  await settled(rigged, rigged.client.close())
})

test("a typed publish that has no encoding sends nothing; one that is too large says so; one that fails can be resent", async () => {
  const rigged = rig()
  const topic = typed(rigged.topic, codec)
  await assert.rejects(topic.publish("cyclic"), (error) => error instanceof InvalidError && error.cause === cause)
  const large = typed(rigged.topic, new Json((value) => value as string))
  const limit = rigged.backend.manifest.limits.payloadBytes
  if (Number.isFinite(limit) && limit < 64 << 20) {
    await assert.rejects(large.publish("x".repeat(limit)), RecordTooLargeError)
  }
  rigged.backend.fate = (append) =>
    append === 0 ? { outcome: "refuse", error: new MillraceError("storage", "full") } : {}
  const failed = await settled(
    rigged,
    topic.publish({ n: 1 }).catch((error) => error),
  )
  assert.ok(failed instanceof PublishFailedError, String(failed))
  await settled(rigged, rigged.topic.batch(failed.unconfirmed))
  assert.deepEqual(stored(rigged), ['{"n":1} millrace-ct=1'])
  await settled(rigged, rigged.client.close())
})

test("what is no codec is refused", () => {
  const { topic } = rig()
  for (const bad of [undefined, {}, { name: "x", encode() {} }, "json"]) {
    assert.throws(() => typed(topic, bad as never), /a codec has a name, encode and decode/)
  }
})
