/** What we write is read by the official NATS client, and the reverse. */
import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { jetstream, jetstreamManager } from "@nats-io/jetstream"
import { connect as connectNats, headers, type NatsConnection } from "@nats-io/transport-node"
import { type Client, connect } from "millrace"
import { encode, take } from "../rig/client-rig.ts"
import { text } from "../rig/records.ts"

const need = await serverNeed("nats")

describe("NATS across clients", { skip: need === undefined ? false : `needs nats: ${need}` }, () => {
  const run = `run${process.pid}`
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

  test("nats.js reads what we write: payloads, text headers as they are, ids by which resends are recognised", async () => {
    const topic = client.stream(`foreign-${run}`).topic("ours")
    await topic.ensure(1)
    const id = 0x0123456789abcdef0123456789abcdefn
    await topic
      .producer()
      .sendBatch([
        { payload: encode("plain"), id },
        { payload: encode("headers"), headers: { trace: "abc", "Content-Type": "text/plain" } },
        { payload: new Uint8Array([0, 255, 10, 13]) },
      ])
    const manager = await jetstreamManager(foreign)
    const [stream] = await manager.streams.list(`millrace.foreign-${run}.ours.0.*`).next()
    assert.ok(stream !== undefined)
    const name = stream.config.name
    const first = await manager.streams.getMessage(name, { seq: 1 })
    const second = await manager.streams.getMessage(name, { seq: 2 })
    const third = await manager.streams.getMessage(name, { seq: 3 })
    assert.equal(text(first?.data ?? null), "plain")
    assert.match(first?.header.get("Nats-Msg-Id") ?? "", /./)
    assert.equal(second?.header.get("trace"), "abc")
    assert.equal(second?.header.get("Content-Type"), "text/plain")
    assert.deepEqual(new Uint8Array(third?.data ?? []), new Uint8Array([0, 255, 10, 13]))
  })

  test("a stream that others made is a topic of one partition, and its messages are read as they are", async () => {
    const name = `orders-${run}`
    const manager = await jetstreamManager(foreign)
    await manager.streams.add({ name, subjects: [`shop.${run}.>`] })
    const theirs = jetstream(foreign)
    const map = headers()
    map.append("trace", "abc")
    map.append("Many", "1")
    map.append("Many", "2")
    await theirs.publish(`shop.${run}.new`, encode("first"), { headers: map })
    await theirs.publish(`shop.${run}.paid`, new Uint8Array(0), { msgID: "not a uuid" })
    const topic = client.topic(name)
    assert.equal((await topic.describe()).partitions, 1)
    const consumer = topic.consumer(undefined, 0, { startAt: { kind: "first" } })
    const [one, other] = await take(consumer, 2)
    await consumer.shutdown()
    assert.equal(text(one?.payload ?? null), "first")
    assert.deepEqual(
      one?.headers.getAll("Many").map((value) => value.value),
      ["1", "2"],
    )
    assert.equal(one?.headers.get("trace")?.value, "abc")
    assert.equal(one?.position.offset, 0n)
    assert.deepEqual(other?.payload, new Uint8Array(0))
    assert.equal(other?.key, null)
    await manager.streams.delete(name)
  })
})
