/** Typed values as the other programs of a backend see them, and theirs as we do: the bytes, the headers, the registry's frame, tombstones, holes. */
import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { jetstreamManager } from "@nats-io/jetstream"
import { connect as connectNats, type NatsConnection } from "@nats-io/transport-node"
import { type Client, confluentRegistry, connect, Json, type TypedTopic } from "millrace"
import { patienceMs } from "../rig/deadline.ts"
import { text } from "../rig/records.ts"
import { RegistryServer } from "../rig/registry-server.ts"
import { plain, type SchemaCase, schemaCases } from "../rig/schema-cases.ts"
import { javaProduce, javaRead } from "./java-client.ts"

const needs = { kafka: await serverNeed("kafka"), nats: await serverNeed("nats") }
const run = `run${process.pid}`
const twice = [
  ["a", "1"],
  ["b", "x"],
  ["a", "2"],
] as const

describe("typed values on Kafka", { skip: needs.kafka === undefined ? false : `needs kafka: ${needs.kafka}` }, () => {
  let url: string
  let client: Client
  let registry: RegistryServer
  before(async () => {
    url = (await sharedServer("kafka")).url
    registry = await RegistryServer.start()
    client = await connect(url, { schemas: confluentRegistry(registry.url, { retries: 0 }) })
  })
  after(async () => {
    await client?.close()
    await registry?.[Symbol.asyncDispose]()
  })

  test("Java reads JSON, tombstones and repeated headers as they are, and the content type as one byte", async () => {
    const topic = client.stream(`foreign-${run}`).topic("typed")
    await topic.ensure(1)
    const typed = topic.json(new Json((value) => value))
    await typed.producer().sendRecords([
      { value: { id: 1 }, key: "k", headers: twice },
      { value: null, key: "k" },
    ])
    const [value, tombstone] = await javaRead(url, `foreign-${run}.typed`)
    assert.equal(text(value?.value), '{"id":1}')
    assert.deepEqual(
      value?.headers.slice(0, 3).map(([name, bytes]) => [name, text(bytes)]),
      twice,
    )
    assert.deepEqual(Array.from(value?.headers.find(([name]) => name === "millrace-ct")?.[1] ?? []), [1])
    assert.equal(tombstone?.value, null)
    assert.deepEqual(tombstone?.headers, [])
  })

  test("a decoder that knows only the registry's documents reads what we write, and we read what Java writes", async () => {
    const topic = client.stream(`foreign-${run}`).topic("framed")
    await topic.ensure(1)
    const ids: number[] = []
    for (const { first, old } of schemaCases) {
      const id = await client.schemas.register(`${first.type}-value`, first)
      ids.push(id)
      await (await topic.schema(id)).publish(old.value)
    }
    for (const [place, ours] of (await javaRead(url, `foreign-${run}.framed`)).entries()) {
      const each = schemaCases[place] as SchemaCase
      assert.deepEqual(await decodedBy(registry.url, each, ours.value ?? new Uint8Array(0)), each.old.value)
      assert.deepEqual(ours.headers, [])
    }
    const theirs = schemaCases.map(({ index, old }, place) => {
      const head = Buffer.alloc(5)
      head.writeUInt32BE(ids[place] as number, 1)
      return { value: Buffer.concat([head, Buffer.from(index, "hex"), Buffer.from(old.hex, "hex")]) }
    })
    const records = [...theirs, { value: null, key: Buffer.from("k") }, { value: Buffer.from("no frame") }]
    await javaProduce(url, `foreign-${run}.framed`, { compression: "none", records })
    for (const [place, { old }] of schemaCases.entries()) {
      const typed = await topic.schema(ids[place] as number)
      const consumer = typed.consumer(undefined, 0, { onDecodeError: "deliver-raw" })
      const seen: unknown[] = []
      while (seen.length < 8) {
        const message = await consumer.nextWithin(patienceMs)
        seen.push(message.kind === "record" ? plain(message.value) : message.kind)
      }
      await consumer.shutdown()
      const own = [0, 1, 2].map((other) => (other === place ? old.value : "raw"))
      assert.deepEqual(seen, [...own, ...own, "tombstone", "raw"])
    }
  })
})

describe("typed values on NATS", { skip: needs.nats === undefined ? false : `needs nats: ${needs.nats}` }, () => {
  let client: Client
  let foreign: NatsConnection
  before(async () => {
    const { url } = await sharedServer("nats")
    client = await connect(url)
    foreign = await connectNats({ servers: new URL(url).host })
  })
  after(async () => {
    await client?.close()
    await foreign?.close()
  })

  /** A topic of JSON with five numbers, and the stream and the subject that it is behind. */
  const numbered = async (name: string): Promise<{ typed: TypedTopic<number>; stream: string }> => {
    const topic = client.stream(`foreign-${run}`).topic(name)
    await topic.ensure(1)
    const typed = topic.json<number>(new Json(Number))
    await typed.producer().sendBatch([0, 1, 2, 3, 4])
    const manager = await jetstreamManager(foreign)
    for await (const info of manager.streams.list()) {
      if (info.config.name.includes(name) && info.state.messages >= 5) return { typed, stream: info.config.name }
    }
    throw new Error(`no stream of topic ${name}`)
  }

  test("nats.js reads the payload as it is, and every value of a repeated header", async () => {
    const { typed, stream } = await numbered("typed")
    await typed.publish(7, { headers: twice })
    const manager = await jetstreamManager(foreign)
    const { state } = await manager.streams.info(stream)
    const message = await manager.streams.getMessage(stream, { seq: state.last_seq })
    assert.equal(text(message?.data ?? null), "7")
    assert.deepEqual(message?.header.values("a"), ["1", "2"])
  })

  test("A-16: messages that another client has deleted are holes, for typed readers and consumers alike", async () => {
    const { typed, stream } = await numbered("holes")
    const manager = await jetstreamManager(foreign)
    const { state } = await manager.streams.info(stream)
    for (const back of [1, 3]) await manager.streams.deleteMessage(stream, state.last_seq - back)
    assert.deepEqual(await numbersOf(typed), [0, 2, 4])
    const consumer = typed.consumer("worker", 0, { commitPolicy: { kind: "each" } })
    const seen: { value: number | undefined; offset: bigint }[] = []
    while (seen.length < 3) {
      const { value, position } = await consumer.nextWithin(patienceMs)
      seen.push({ value, offset: position.offset })
    }
    assert.deepEqual(
      seen.map(({ value }) => value),
      [0, 2, 4],
    )
    assert.ok((seen[0]?.offset ?? 0n) < (seen[1]?.offset ?? 0n) && (seen[1]?.offset ?? 0n) < (seen[2]?.offset ?? 0n))
    await consumer.commit()
    assert.deepEqual(
      (await consumer.lag()).map(({ lag }) => lag),
      [0n],
    )
    await consumer.shutdown()
  })
})

async function numbersOf(typed: TypedTopic<number>): Promise<number[]> {
  await using reader = await typed.records("values")
  return (await reader.poll()).map((result) => (result.kind === "record" ? result.value : Number.NaN))
}

/** Decodes a framed value with the registry's HTTP interface and the formats' specifications, and nothing of ours. */
async function decodedBy(url: string, { index }: SchemaCase, framed: Uint8Array): Promise<object> {
  const bytes = Buffer.from(framed)
  assert.equal(bytes[0], 0, "the magic byte")
  const answer = await fetch(`${url}/schemas/ids/${bytes.readUInt32BE(1)}`)
  const { schemaType = "AVRO" } = (await answer.json()) as { schemaType?: string }
  const at = 5 + index.length / 2
  assert.equal(bytes.toString("hex", 5, at), index)
  if (schemaType === "JSON") return JSON.parse(bytes.toString("utf8", at))
  if (schemaType === "AVRO") {
    // A string: its length as a zigzag varint, and its bytes. An int: a zigzag varint. All of them are below 64 here.
    const end = at + 1 + (bytes[at] as number) / 2
    return { item: bytes.toString("utf8", at + 1, end), count: (bytes[end] as number) / 2 }
  }
  assert.equal(schemaType, "PROTOBUF")
  // Field 1, length-delimited; field 2, a varint.
  assert.equal(bytes[at], 0x0a)
  const end = at + 2 + (bytes[at + 1] as number)
  assert.equal(bytes[end], 0x10)
  return { item: bytes.toString("utf8", at + 2, end), count: bytes[end + 1] as number }
}
