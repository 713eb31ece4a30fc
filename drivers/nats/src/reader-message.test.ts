import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { headers, type Msg } from "@nats-io/transport-node"
import fc from "fast-check"
import { ReaderMessage, ReplyShape } from "./reader-message.ts"
import { statusOf } from "./reader-status.ts"

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

/** As far as a reader looks at it. */
function message(reply: string): Msg {
  return { reply, data: new Uint8Array(3), size: () => 90 } as unknown as Msg
}

function status(code: number, description: string, fields: Readonly<Record<string, string>> = {}): Msg {
  const block = headers(code, description)
  for (const [name, value] of Object.entries(fields)) block.set(name, value)
  return { headers: block, data: new Uint8Array(0) } as unknown as Msg
}

describe("the reply subject of a message (ADR-15)", () => {
  const short = "$JS.ACK.ORDERS.c1.1.4711.12.1790000000123456789.30"
  const long = "$JS.ACK.hub.acc9.ORDERS.c1.1.4711.12.1790000000123456789.30.x7"

  it("tells sequence, time and what is pending, in both forms", () => {
    for (const reply of [short, long, long.replace(".x7", "")]) {
      assert.equal(new ReplyShape().sequence(bytes(reply)), 4711, reply)
      const one = new ReaderMessage(message(reply), 4711)
      assert.equal(one.timestampMicros(), 1790000000123456n)
      assert.equal(one.pending(), 30)
      assert.equal(one.bytes, 90)
    }
  })

  it("is none for anything else, at whatever length it is cut", () => {
    for (const reply of [
      "",
      "_INBOX.a.b",
      "$JS.ACK.a.b.c",
      "$JS.FC.a.b.1.2.3.4.5",
      "$JS.ACK.O.c.1.x.12.17.30",
      "$JS.ACK.O.c.1.99999999999999999999.1.1.1",
    ]) {
      assert.equal(new ReplyShape().sequence(bytes(reply)), 0, reply)
    }
    for (let length = 0; length < short.length - 24; length++) {
      assert.ok([0, 4, 47, 471, 4711].includes(new ReplyShape().sequence(bytes(short.slice(0, length)))))
    }
  })

  it("is read alike for every message of a consumer, whatever names and numbers there are", () => {
    const word = fc.stringMatching(/^[A-Za-z0-9_=-]{1,12}$/)
    fc.assert(
      fc.property(
        word,
        word,
        fc.array(fc.integer({ min: 1, max: 2 ** 40 }), { minLength: 1, maxLength: 6 }),
        (stream, consumer, sequences) => {
          const shape = new ReplyShape()
          for (const sequence of sequences) {
            assert.equal(shape.sequence(bytes(`$JS.ACK.${stream}.${consumer}.1.${sequence}.1.2.3`)), sequence)
          }
        },
      ),
    )
  })

  it("that is broken is told when somebody asks", () => {
    assert.throws(() => new ReaderMessage(message("$JS.ACK.O.c.1.5.1.now.0"), 5).timestampMicros(), {
      kind: "protocol",
    })
  })
})

describe("a status message (ADR-37)", () => {
  const cases: readonly (readonly [number, string, string])[] = [
    [100, "Idle Heartbeat", "heartbeat"],
    [400, "Bad Request", "refused"],
    [404, "No Messages", "ended"],
    [408, "Request Timeout", "ended"],
    [408, "Interest Expired", "ended"],
    [409, "Message Size Exceeds MaxBytes", "tooLarge"],
    [409, "Batch Completed", "ended"],
    [409, "Consumer Deleted", "gone"],
    [409, "Leadership Change", "gone"],
    [409, "Server Shutdown", "gone"],
    [409, "Exceeded MaxRequestBatch of 10", "refused"],
    [409, "Consumer is push based", "refused"],
    [503, "No Responders", "gone"],
    [499, "something new", "ended"],
  ]
  for (const [code, description, expected] of cases) {
    it(`${code} ${description}: ${expected}`, () => assert.equal(statusOf(status(code, description)).status, expected))
  }

  it("tells what was left of the pull", () => {
    const reply = statusOf(
      status(408, "Request Timeout", { "Nats-Pending-Messages": "12", "Nats-Pending-Bytes": "-4" }),
    )
    assert.equal(reply.unservedMessages, 12)
    assert.equal(reply.unservedBytes, undefined)
  })
})
