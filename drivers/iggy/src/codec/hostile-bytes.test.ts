import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { MillraceError } from "@millrace/contract"
import fc from "fast-check"
import { ByteReader } from "../wire/byte-reader.ts"
import { headerBytes } from "../wire/header.ts"
import { readReply } from "../wire/reply.ts"
import { type AnyCommand, commands } from "./all-commands.test-support.ts"
import { exchanges } from "./exchanges.test-support.ts"

/** Payloads of recorded successes, by the command's name. */
const payloads = exchanges.flatMap((one) => {
  const command = commands.find((known) => known.name === one.file)
  if (command === undefined || one.response.length <= headerBytes) return []
  const reply = readReply(one.response)
  return reply.code === 0 && reply.payload.length > 0 ? [{ command, payload: reply.payload }] : []
})

/** Reads, and allows a refusal of kind `protocol` alone. */
function tryRead(command: AnyCommand, bytes: Buffer, side: "request" | "reply" = "reply"): void {
  for (const version of ["0.11", "0.12"] as const) {
    try {
      const reader = new ByteReader(bytes, command.name)
      command[side].read(reader, version)
      reader.end()
    } catch (error) {
      assert.ok(error instanceof MillraceError && error.kind === "protocol", `${command.name}: ${String(error)}`)
    }
  }
}

describe("hostile bytes", () => {
  it("cover most commands", () => {
    assert.ok(new Set(payloads.map(({ command }) => command.name)).size >= 20)
  })

  it("that end at any byte are refused as protocol errors", () => {
    for (const { command, payload } of payloads) {
      for (let length = 0; length < payload.length; length++) tryRead(command, payload.subarray(0, length))
    }
  })

  it("that are altered at any byte are read or refused", () => {
    for (const { command, payload } of payloads) {
      for (let at = 0; at < payload.length; at++) {
        for (const value of [0x00, 0xff, (payload[at] as number) ^ 0x80]) {
          const altered = Buffer.from(payload)
          altered[at] = value
          tryRead(command, altered)
        }
      }
    }
  })

  it("of any kind are read or refused, as replies and as requests", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), (noise) => {
        for (const command of commands) {
          tryRead(command, Buffer.from(noise))
          tryRead(command, Buffer.from(noise), "request")
        }
      }),
      { numRuns: 100 },
    )
  })

  it("make no list that is larger than they are", () => {
    assert.throws(() => new ByteReader(Buffer.alloc(8), "a reply").count(3, 4), /a reply counts 3 items in 8 bytes/)
    assert.equal(new ByteReader(Buffer.alloc(8), "a reply").count(2, 4), 2)
    const counts = Buffer.alloc(64, 0xff)
    for (const command of commands) tryRead(command, counts)
  })

  it("in a whole reply are refused as protocol errors", () => {
    fc.assert(
      fc.property(fc.nat(exchanges.length - 1), fc.nat(), fc.integer({ min: 0, max: 255 }), (index, where, value) => {
        const frame = Buffer.from(exchanges[index]?.response ?? [])
        if (frame.length < headerBytes) return
        frame[where % frame.length] = value
        try {
          readReply(frame)
        } catch (error) {
          assert.ok(error instanceof MillraceError && error.kind === "protocol")
        }
      }),
      { numRuns: 1000 },
    )
  })
})
