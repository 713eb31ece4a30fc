import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { connect, type NatsConnection } from "@nats-io/transport-node"
import { inOrder, numbered, Reading, Shop } from "./reader-fixture.test-support.ts"

const orders = { stream: "shop", topic: "orders" }

/** One request of the JetStream API by a client of its own. */
async function api(nc: NatsConnection, path: string, body: unknown = {}): Promise<Record<string, unknown>> {
  return (await nc.request(`$JS.API.${path}`, JSON.stringify(body))).json()
}

describe("a reader over a real server", () => {
  test("goes on by itself when the server was killed and started again (A-08)", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await shop.topic(session, orders)
    await shop.append(session, topic, { texts: numbered("r", 0, 10) })
    const reading = new Reading(session, topic)
    await reading.until("the first ten", () => reading.seen.length === 10)
    // A poll is under way when the server goes.
    const poll = reading.poll({ maxWaitMs: 1_000 })
    await shop.server.kill("SIGKILL")
    await poll
    await shop.server.start()
    const started = performance.now()
    const writer = await shop.session()
    await shop.append(writer, topic, { texts: numbered("r", 10, 20) })
    await reading.until("the ten after the restart", () => reading.seen.length >= 20)
    t.diagnostic(`first record ${Math.round(performance.now() - started)} ms after the restart`)
    assert.deepEqual(reading.seen, inOrder(numbered("r", 0, 20)))
    assert.deepEqual(reading.errors, [])
    await reading.reader.close()
  })

  test("neither loses nor repeats when its connection is cut again and again", async (t) => {
    const shop = await Shop.open(t, { proxied: true })
    if (shop === undefined) return
    const [session, writer] = [await shop.session(), await shop.directSession()]
    const topic = await shop.topic(writer, orders)
    const reading = new Reading(session, topic)
    const total = 300
    let done = false
    const writing = (async () => {
      for (let from = 0; from < total; from += 10)
        await shop.append(writer, topic, { texts: numbered("r", from, from + 10) })
      done = true
    })()
    let cuts = 0
    while (!done || reading.seen.length < total) {
      await reading.poll({ maxRecords: 7, maxWaitMs: 200 })
      if (cuts < 4 && reading.seen.length > cuts * 60) {
        cuts++
        shop.server.proxies[0]?.cut("reset")
      }
      if (done && cuts === 4) break
    }
    await writing
    await reading.until("all records", () => reading.seen.length >= total)
    assert.ok(cuts >= 3, `the connection was cut only ${cuts} times`)
    assert.deepEqual(reading.seen, inOrder(numbered("r", 0, total)))
    // What a cut left on the server is gone once the connection is back.
    const nc = await connect({ servers: shop.server.directUrl.replace("nats://", "") })
    t.after(() => nc.close())
    const { streams } = (await api(nc, "STREAM.NAMES")) as { streams: string[] }
    const stream = streams.find((name) => name.startsWith("millrace")) as string
    const { consumers } = (await api(nc, `CONSUMER.NAMES.${stream}`)) as { consumers: string[] }
    assert.equal(consumers.length, 1)
    await reading.reader.close()
  })

  test("a consumer that is gone is made again", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await shop.topic(session, orders)
    await shop.append(session, topic, { texts: ["a"] })
    const reading = new Reading(session, topic)
    await reading.until("the first", () => reading.seen.length === 1)
    const nc = await connect({ servers: `127.0.0.1:${shop.server.ports[0]}` })
    t.after(() => nc.close())
    const { streams } = (await api(nc, "STREAM.NAMES")) as { streams: string[] }
    const stream = streams.find((name) => name.startsWith("millrace")) as string
    const { consumers } = (await api(nc, `CONSUMER.NAMES.${stream}`)) as { consumers: string[] }
    assert.equal(consumers.length, 1)
    await api(nc, `CONSUMER.DELETE.${stream}.${consumers[0]}`)
    await shop.append(session, topic, { texts: ["b"] })
    await reading.until("the second", () => reading.seen.length >= 2)
    assert.deepEqual(reading.seen, inOrder(["a", "b"]))
    await reading.reader.close()
    await session.catalog.listStreams()
    const left = (await api(nc, `CONSUMER.NAMES.${stream}`)) as { consumers: string[] | null }
    assert.deepEqual(left.consumers ?? [], [], "a closed reader left its consumer behind")
  })

  test("passes over deleted sequences, wherever they are, and comes to the end (A-16)", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const nc = await connect({ servers: `127.0.0.1:${shop.server.ports[0]}` })
    t.after(() => nc.close())
    await api(nc, "STREAM.CREATE.HOLES", { name: "HOLES", subjects: ["holes"], storage: "file" })
    for (let index = 0; index < 20; index++) await nc.request("holes", `r${index}`)
    for (const seq of [3, 4, 8, 9, 10, 19, 20]) await api(nc, "STREAM.MSG.DELETE.HOLES", { seq })
    const topic = await session.catalog.describeTopic({ stream: "", topic: "HOLES" })
    const reading = new Reading(session, topic)
    await reading.until("the end", () => reading.nextOffsets.get(0) === 20n || reading.errors.length > 0, {
      maxRecords: 4,
    })
    const offsets = [0, 1, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16, 17]
    assert.deepEqual(
      reading.seen,
      offsets.map((offset) => `0:${offset}:r${offset}`),
    )
    assert.equal(reading.heads.get(0), 20n)
    assert.deepEqual(reading.errors, [])
    await reading.reader.close()
  })

  test("a position before what retention left is refused with both numbers (A-13)", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const nc = await connect({ servers: `127.0.0.1:${shop.server.ports[0]}` })
    t.after(() => nc.close())
    await api(nc, "STREAM.CREATE.SHORT", { name: "SHORT", subjects: ["short"], max_msgs: 5 })
    for (let index = 0; index < 12; index++) await nc.request("short", `r${index}`)
    const topic = await session.catalog.describeTopic({ stream: "", topic: "SHORT" })
    const reading = new Reading(session, topic, { 0: 5n })
    await reading.until("the refusal", () => reading.errors.length > 0)
    const [error] = reading.errors
    assert.equal(error?.kind, "offset-out-of-range")
    assert.deepEqual([error?.context.offset, error?.context.first, error?.context.end], [5n, 7n, 12n])
    await reading.reader.close()
  })

  test("what is larger than the limit comes alone, and keeps nothing behind it back", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await shop.topic(session, orders)
    const large = "x".repeat(300_000)
    const texts = [large, "a", large, large, "b", "c"]
    for (const text of texts) await shop.append(session, topic, { texts: [text] })
    const reading = new Reading(session, topic)
    await reading.until("all", () => reading.seen.length >= texts.length, { maxBytes: 20_000 })
    assert.deepEqual(reading.seen, inOrder(texts))
    await reading.reader.close()
  })

  test("a server that halts without a word is noticed, and the reader goes on with it", async (t) => {
    const shop = await Shop.open(t)
    if (shop === undefined) return
    const session = await shop.session()
    const topic = await shop.topic(session, orders)
    await shop.append(session, topic, { texts: ["a"] })
    const reading = new Reading(session, topic)
    await reading.until("the first", () => reading.seen.length === 1)
    shop.server.pause()
    await reading.poll({ maxWaitMs: 300 })
    shop.server.resume()
    await shop.append(session, topic, { texts: ["b"] })
    await reading.until("the second", () => reading.seen.length >= 2)
    assert.deepEqual(reading.seen, inOrder(["a", "b"]))
    await reading.reader.close()
  })
})
