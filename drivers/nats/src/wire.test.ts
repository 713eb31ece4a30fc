import assert from "node:assert/strict"
import { test } from "node:test"
import type { Msg } from "@nats-io/transport-node"
import { rawHeaders, rawReply } from "./raw-message.ts"
import { Shop } from "./reader-fixture.test-support.ts"
import type { NatsNative } from "./session.ts"
import { Wire } from "./wire.ts"

const timeout = 60_000

test("the installed client still has the inner parts that this package uses", { timeout }, async (t) => {
  const shop = await Shop.open(t)
  if (shop === undefined) return
  const session = await shop.session()
  const { connection: nc } = session.native as NatsNative
  const inner = nc as unknown as { readonly protocol: Record<string, unknown> }
  const { sendCommand, parser, transport, heartbeats, connectPromise, options } = inner.protocol
  assert.equal((options as { timeout: unknown }).timeout, 5_000)
  assert.equal(typeof sendCommand, "function")
  assert.equal(typeof (parser as { parse: unknown }).parse, "function")
  assert.equal(typeof (transport as { discard: unknown }).discard, "function")
  assert.equal(typeof (heartbeats as { cancel: unknown }).cancel, "function")
  assert.equal(connectPromise, null)
})

test("what goes over the wire comes back byte for byte: payload, header block, reply subject", {
  timeout,
}, async (t) => {
  const shop = await Shop.open(t)
  if (shop === undefined) return
  const session = await shop.session()
  const { connection: nc } = session.native as NatsNative
  const got: Msg[] = []
  const { promise: done, resolve } = Promise.withResolvers<void>()
  nc.subscribe("echo", {
    callback: (_error, message) => {
      got.push(message)
      if (got.length === 3) resolve()
    },
  })
  const wire = new Wire(nc)
  const block = Buffer.from("NATS/1.0\r\nb:  2 \r\na: 1\r\nb:3\r\n\r\n", "latin1")
  const payload = Uint8Array.from({ length: 256 }, (_, index) => index)
  wire.publish("echo", "back.here", { payload, headers: block })
  wire.publish("echo", "", { payload })
  wire.send(Buffer.from("PUB echo 1\r\nx\r\n"))
  await done
  const [first, second, third] = got as [Msg, Msg, Msg]
  assert.equal(Buffer.compare(rawHeaders(first) ?? Buffer.alloc(0), block), 0)
  assert.equal(Buffer.compare(first.data, payload), 0)
  assert.equal(Buffer.from(rawReply(first) ?? []).toString(), "back.here")
  assert.equal(rawHeaders(second), undefined)
  assert.equal(Buffer.compare(second.data, payload), 0)
  assert.equal(third.string(), "x")
})

test("a client of another release is refused, not misused", () => {
  assert.throws(() => new Wire({} as never), { kind: "protocol", outcome: "rejected" })
})
