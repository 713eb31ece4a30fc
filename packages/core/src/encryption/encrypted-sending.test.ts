/** What every way of sending does under an encryptor, over a backend in memory: what is stored, resent, given back, and sent again. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { Headers, InvalidError, type Manifest, RecordTooLargeError } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { type Client, openClient } from "../client/client.ts"
import type { ClientOptions } from "../client/client-options.ts"
import type { Topic } from "../client/topic.ts"
import { Json } from "../codec/json.ts"
import { FakeBackend, fakeManifest, type StoredRecord } from "../producer/fake-backend.test-support.ts"
import { PublishFailedError } from "../producer/publish-failed.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { encryptor, type OpenedContent } from "./encryptor.ts"
import { keyOf, openSealed } from "./sealed-record.test-support.ts"

const ours = encryptor({ current: "k", keys: { k: keyOf(1) } })
const theirs = encryptor({ current: "x", keys: { x: keyOf(2) } })
const place = { stream: "s", topic: "t" }

interface Rig {
  readonly clock: VirtualClock
  readonly backend: FakeBackend
  readonly client: Client
  readonly topic: Topic
}

function rig(options: ClientOptions = { encryptor: ours }, manifest?: Manifest): Rig {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock, manifest)
  backend.create("t", 3)
  const client = openClient(backend.session, options, { clock, random: seededRandom(1) })
  return { clock, backend, client, topic: client.stream("s").topic("t") }
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
const text = (payload: Uint8Array | null | undefined): string => new TextDecoder().decode(payload ?? bytes("null"))

async function run<T>(clock: VirtualClock, promise: Promise<T>): Promise<T> {
  let settled = false
  const watched = promise.finally(() => {
    settled = true
  })
  watched.catch(() => {})
  for (let steps = 0; !settled; steps++) {
    assert.ok(steps < 10_000, "nothing settled")
    await clock.advance(20)
  }
  return await watched
}

function stored(backend: FakeBackend, topic = "t"): StoredRecord[] {
  return [0, 1, 2].flatMap((partition) => backend.records(topic, partition))
}

function opened(one: StoredRecord, by = ours, topic = "t"): OpenedContent {
  const { payload, headers } = one
  const record = { payload, headers, key: null, id: undefined, timestampMicros: undefined, partition: -1 }
  const content = openSealed(by.opener(), record, { stream: "s", topic })
  assert.ok(content !== undefined)
  return content
}

async function failureOf(clock: VirtualClock, promise: Promise<unknown>): Promise<PublishFailedError> {
  const [outcome] = await run(clock, Promise.allSettled([promise]))
  assert.ok(outcome?.status === "rejected" && outcome.reason instanceof PublishFailedError, String(outcome))
  return outcome.reason
}

const ways: Readonly<Record<string, (topic: Topic, payload: Uint8Array) => Promise<unknown>>> = {
  "a direct send": (topic, payload) => topic.producer().send(payload),
  "a send with options": (topic, payload) => topic.producer().send(payload, { partition: 1, headers: { h: "v" } }),
  sendBatch: (topic, payload) => topic.producer().sendBatch([payload]),
  sendAndConfirm: (topic, payload) => topic.producer().sendAndConfirm(payload),
  enqueue: async (topic, payload) => await await topic.producer().enqueue({ payload }),
  "a background send": async (topic, payload) => {
    const producer = topic.producer({ background: true })
    await producer.send(payload)
    await producer.flush()
  },
  "a background sendBatch": async (topic, payload) => {
    const producer = topic.producer({ background: true })
    await producer.sendBatch([payload])
    await producer.flush()
  },
  "a background sendAndConfirm": async (topic, payload) => {
    const producer = topic.producer({ background: true })
    const delivery = producer.sendAndConfirm(payload)
    await producer.flush()
    await delivery
  },
  "a background enqueue": async (topic, payload) => {
    const producer = topic.producer({ background: true })
    const handle = producer.enqueue({ payload })
    await producer.flush()
    await await handle
  },
  "a pooled batch in the background": async (topic, payload) => {
    const producer = topic.producer({ background: true })
    await producer.send(topic.batchBuilder().add(payload).build())
    await producer.flush()
  },
  "a batching producer": async (topic, payload) => {
    const producer = topic.batching().build()
    await producer.send(payload)
    await producer.flush()
  },
  "a pooled batch": (topic, payload) => topic.producer().send(topic.batchBuilder().add(payload).build()),
  "publish()": (topic, payload) => topic.publish().payload(payload).send(),
  "publishBatch()": (topic, payload) => topic.publishBatch().add(payload).send(),
  "topic.batch()": (topic, payload) => topic.batch([{ payload }]),
  "a typed topic": (topic, payload) => topic.json(new Json((value) => value)).publish(text(payload)),
}

describe("under the client's encryptor", () => {
  for (const [way, send] of Object.entries(ways)) {
    test(`${way} stores what only the key opens`, async () => {
      const { clock, backend, topic } = rig()
      await run(clock, send(topic, bytes("secret")))
      const [record, ...rest] = stored(backend)
      assert.ok(record !== undefined && rest.length === 0)
      assert.equal(text(opened(record).payload).replaceAll('"', ""), "secret")
      const plain = Buffer.from(record.payload as Uint8Array).toString("latin1")
      assert.ok(!plain.includes("secret") && record.headers.size === 0)
    })
  }

  test("sendTo binds the record to the topic that it goes to", async () => {
    const { clock, backend, client, topic } = rig()
    backend.create("u", 3)
    await run(clock, topic.producer().sendTo(client.stream("s").topic("u"), bytes("p")))
    const [record] = stored(backend, "u")
    assert.ok(record !== undefined)
    assert.equal(text(opened(record, ours, "u").payload), "p")
    assert.throws(() => opened(record))
  })

  test("metadata and the headers of a batch are encrypted; the key routes and stays readable", async () => {
    const { clock, backend, topic } = rig()
    await run(clock, topic.publish().json({ n: 1 }).key("ann").index("customer", "ann").header("h", "v").send())
    const plain = rig({})
    await run(plain.clock, plain.topic.publish().json({ n: 1 }).key("ann").send())
    const partitionOf = ({ backend }: Rig): number =>
      [0, 1, 2].findIndex((partition) => backend.records("t", partition).length > 0)
    assert.equal(partitionOf({ backend } as Rig), partitionOf(plain))
    const [record] = stored(backend)
    assert.ok(record !== undefined)
    assert.equal(text(record.key), "ann")
    assert.equal(record.headers.size, 0)
    const { headers } = opened(record)
    assert.ok(headers instanceof Headers)
    assert.deepEqual(
      Array.from(headers, ([name]) => name),
      ["h", "millrace-ct", "millrace-idx.customer"],
    )
  })

  test("a tombstone stays one", async () => {
    const { clock, backend, topic } = rig()
    await run(clock, topic.producer().send(null, { key: "ann" }))
    const [record] = stored(backend)
    assert.equal(record?.payload, null)
    assert.equal(opened(record as StoredRecord).payload, null)
  })

  test("trace context stays readable beside the envelope, and comes back with the headers", async () => {
    const { clock, backend, topic } = rig()
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await run(
      clock,
      topic.producer().send(bytes("p"), {
        headers: [
          ["a", "1"],
          ["traceparent", traceparent],
          ["b", "2"],
        ],
      }),
    )
    const [record] = stored(backend)
    assert.deepEqual(
      Array.from(record?.headers ?? [], ([name, value]) => [name, value.value]),
      [["traceparent", traceparent]],
    )
  })

  test("a partitioner sees what is sent", async () => {
    const { clock, backend, topic } = rig()
    const seen: (Uint8Array | null)[] = []
    const producer = topic.producer({
      partitioner: (_topic, { payload }) => {
        seen.push(payload?.slice() ?? null)
        return 2
      },
    })
    await run(clock, producer.send(bytes("p")))
    assert.deepEqual(seen, [new Uint8Array(backend.records("t", 2)[0]?.payload ?? [])])
  })

  test("every attempt has the same bytes: a resend after a lost answer is recognised", async () => {
    const { clock, backend, topic } = rig()
    backend.fate = (append) => (append === 0 ? { outcome: "lose" } : {})
    await run(clock, topic.producer().send(bytes("p"), { partition: 0 }))
    assert.equal(backend.appends.length, 2)
    assert.equal(stored(backend).length, 1)
  })

  test("sizes count what is sent, and a record that is too large only then is named before anything is sent", async () => {
    const { clock, backend, topic } = rig({ encryptor: ours }, fakeManifest({}, { payloadBytes: 100 }))
    const large = { payload: new Uint8Array(90) }
    for (const call of [
      () => topic.producer().sendBatch([bytes("fine"), large]),
      () => topic.producer({ background: true }).sendBatch([bytes("fine"), large]),
      () => topic.publishBatch().add(bytes("fine")).add(large.payload).send(),
    ]) {
      await assert.rejects(
        run(clock, call()),
        (error: unknown) =>
          error instanceof RecordTooLargeError && /record #1: the encrypted payload has 133 bytes/.test(error.message),
      )
    }
    await assert.rejects(
      run(clock, topic.publish().payload(large.payload).send()),
      (error: unknown) =>
        error instanceof RecordTooLargeError && /^the encrypted payload has 133 bytes/.test(error.message),
    )
    await assert.rejects(run(clock, topic.batching().build().send(large.payload)), RecordTooLargeError)
    assert.equal(backend.appends.length, 0)
  })
})

describe("an encryptor of a producer's own", () => {
  test("takes the place of the client's, and `false` sends records as they are", async () => {
    const { clock, backend, topic } = rig()
    await run(clock, topic.producer({ encryptor: theirs }).send(bytes("p"), { partition: 0 }))
    await run(clock, topic.producer({ encryptor: false }).send(bytes("plain"), { partition: 1 }))
    assert.equal(text(opened(backend.records("t", 0)[0] as StoredRecord, theirs).payload), "p")
    assert.equal(text(backend.records("t", 1)[0]?.payload), "plain")
  })

  test("is refused when it is none", () => {
    const { topic } = rig()
    for (const wrong of [null, true, "k", {}]) {
      assert.throws(() => topic.producer({ encryptor: wrong as never }), InvalidError)
    }
    assert.throws(() => rig({ encryptor: false as never }), InvalidError)
  })
})

describe("records of a failed publish", () => {
  async function failed(r: Rig, options: Parameters<Topic["producer"]>[0] = {}): Promise<PublishFailedError> {
    r.backend.fate = () => ({ outcome: "lose" })
    const producer = r.topic.producer({ retries: 0, onUnknown: "fail", ...options })
    const records = [bytes("a"), { payload: bytes("b"), headers: { h: "v" } }, { payload: null, key: "k" }]
    const error = await failureOf(r.clock, producer.sendBatch(records.map((record) => record)))
    r.backend.fate = () => ({})
    assert.equal(error.unconfirmed.length, 3)
    return error
  }

  for (const [kept, keep] of [
    ["as they came", (records: readonly OutgoingRecord[]) => records],
    [
      "copied",
      (records: readonly OutgoingRecord[]) =>
        records.map((record) => ({ ...record, payload: record.payload?.slice() ?? null })),
    ],
  ] as const) {
    test(`are encrypted, and topic.batch sends the same bytes again (${kept})`, async () => {
      const r = rig()
      const error = await failed(r)
      const before = stored(r.backend).map(({ payload, id }) => ({ payload, id }))
      for (const record of error.unconfirmed)
        assert.ok(!text(record.payload).includes("b") || record.payload?.[0] === 0xfa)
      await run(r.clock, r.topic.batch(keep(error.unconfirmed)))
      const after = stored(r.backend)
      assert.deepEqual(
        after.map(({ payload, id }) => ({ payload, id })),
        before,
        "recognised by their ids",
      )

      const fresh = rig()
      await run(fresh.clock, fresh.topic.batch(keep(error.unconfirmed)))
      const again = stored(fresh.backend)
      assert.deepEqual(
        again.map(({ payload, id }) => ({ payload, id })),
        before,
        "and byte for byte elsewhere",
      )
      assert.deepEqual(
        again
          .map((record) => opened(record).payload)
          .map(text)
          .sort(),
        ["a", "b", "null"],
      )
    })
  }

  test("of a producer with another key go out as they were, too", async () => {
    const r = rig()
    const error = await failed(r, { encryptor: theirs })
    const fresh = rig()
    await run(fresh.clock, fresh.topic.batch(error.unconfirmed))
    assert.deepEqual(
      stored(fresh.backend)
        .map((record) => text(opened(record, theirs).payload))
        .sort(),
      ["a", "b", "null"],
    )
  })

  test("of a producer without one stay plain only when that is said", async () => {
    const r = rig()
    const error = await failed(r, { encryptor: false })
    const plain = rig()
    await run(plain.clock, plain.topic.batch(error.unconfirmed, { encryptor: false }))
    assert.deepEqual(
      stored(plain.backend)
        .map(({ payload }) => text(payload))
        .sort(),
      ["a", "b", "null"],
    )
    const sealed = rig()
    await run(sealed.clock, sealed.topic.batch(error.unconfirmed))
    assert.deepEqual(
      stored(sealed.backend)
        .map((record) => text(opened(record).payload))
        .sort(),
      ["a", "b", "null"],
    )
  })

  test("are refused for another topic, where nobody could decrypt them", async () => {
    const r = rig()
    const error = await failed(r)
    r.backend.create("u", 3)
    await assert.rejects(
      run(r.clock, r.client.stream("s").topic("u").batch(error.unconfirmed)),
      (error: unknown) =>
        error instanceof InvalidError && /record #0: .*resend it to the topic that it failed on/.test(error.message),
    )
    assert.equal(stored(r.backend, "u").length, 0)
  })

  test("of a batching producer are encrypted, those that met a kept failure with them", async () => {
    const { clock, backend, topic } = rig()
    backend.fate = () => ({ outcome: "refuse" })
    const producer = topic.batching().linger(1).build()
    await run(clock, producer.send(bytes("a")))
    for (let steps = 0; steps < 400; steps++) await clock.advance(20)
    const error = await failureOf(clock, producer.send(bytes("b")))
    assert.deepEqual(
      error.unconfirmed.map(({ payload }) =>
        text(ours.opener().open(place, { payload: payload ?? null, headers: () => Headers.empty })?.payload),
      ),
      ["a", "b"],
    )
    await run(clock, producer.close())
  })
})
