import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { ByteReader } from "../wire/byte-reader.ts"
import { ByteWriter } from "../wire/byte-writer.ts"
import {
  frameKinds,
  headerBytes,
  kindAt,
  mostRequestBytes,
  readEvictionHeader,
  sizeAt,
  writeRequestHeader,
} from "../wire/header.ts"
import { nonReplicated, register } from "../wire/operation.ts"
import { readReply } from "../wire/reply.ts"
import { readRequestHeader } from "../wire/server-side.test-support.ts"
import { type AnyCommand, commands } from "./all-commands.test-support.ts"
import { type Exchange, exchanges } from "./exchanges.test-support.ts"

/** Requests that no client should send: their bodies are malformed on purpose, or their headers lie. */
const malformed = new Set([
  "create_stream/empty_body_status_3",
  "describe_options/bad_scope_status_3",
  "errors/malformed_payload_read_status_3",
  "errors/malformed_payload_create_status_3",
  "errors/replicated_code_as_nonreplicated_status_5",
  "errors/unknown_command_status_3",
  "errors/frame_above_64_mib_connection_closed",
  "errors/frame_size_below_256_connection_closed",
  "login_register/incompatible_protocol_eviction_14",
  "login_register/malformed_body_eviction_15",
  "poll_messages/undecodable_request_empty_poll",
  "store_consumer_offset/missing_ack_byte_status_20",
])
/** The retired logins have no layout of ours. */
const retired = "legacy_login_user"

describe("recorded exchanges", () => {
  it("are all there", () => {
    assert.equal(exchanges.length, 187)
    assert.equal(new Set(exchanges.map((one) => one.file)).size, 50)
  })

  for (const one of exchanges) {
    const key = `${one.file}/${one.name}`
    if (one.request.length > 0 && !malformed.has(key) && one.file !== retired) {
      it(`${key}: the request is written as recorded`, () => {
        const header = readRequestHeader(one.request)
        const command = commandOf(one)
        assert.equal(header.operation, command.operation)
        const reader = new ByteReader(one.request.subarray(headerBytes), key)
        const query = command.request.read(reader, "0.11")
        reader.end()
        const writer = new ByteWriter()
        writer.zeros(headerBytes)
        command.request.write(writer, query, "0.11")
        const frame = writer.bytes()
        writeRequestHeader(frame, { ...header, code: header.operation === nonReplicated ? command.code : 0 })
        assert.equal(frame.toString("hex"), one.request.toString("hex"))
      })
    }
    if (one.response.length > 0) {
      it(`${key}: the reply is read to its last byte`, () => {
        assert.equal(one.response.readUInt32LE(sizeAt), one.response.length)
        const reason = /eviction_(\d+)|Eviction reason (\d+)/.exec(`${one.name} ${one.note}`)
        if (one.response[kindAt] === frameKinds.eviction) {
          const expected = Number(reason?.[1] ?? reason?.[2])
          const { reason: found } = readEvictionHeader(one.response)
          assert.equal(found, Number.isNaN(expected) ? 1 : expected)
          return
        }
        assert.equal(one.response[kindAt], frameKinds.reply)
        const reply = readReply(one.response)
        assert.equal(reply.header.request, one.request.length === 0 ? 0 : readRequestHeader(one.request).request)
        const refused = /(?:^|_)(?:status_)?(\d{1,5})$/.exec(one.name)
        if (/status_\d+$/.test(one.name)) assert.equal(reply.code, Number(refused?.[1]))
        if (reply.code !== 0) {
          assert.equal(reply.payload.length, 0)
          return
        }
        const command = commandOf(one)
        const reader = new ByteReader(reply.payload, key)
        const value = command.reply.read(reader, "0.11")
        reader.end()
        const writer = new ByteWriter()
        command.reply.write(writer, value, "0.11")
        assert.equal(writer.bytes().toString("hex"), reply.payload.toString("hex"))
      })
    }
  }

  it("know a size above the limit", () => {
    const one = exchanges.find((known) => known.name === "frame_above_64_mib_connection_closed")
    assert.equal(one?.request.readUInt32LE(sizeAt), mostRequestBytes + 1)
  })
})

/** The command by the header: by its code, or by its operation; the two logins share one and differ by the file. */
function commandOf(one: Exchange): AnyCommand {
  const { operation, code } = readRequestHeader(one.request)
  const wanted = (command: AnyCommand): boolean =>
    operation === nonReplicated
      ? command.code === code && command.operation === nonReplicated
      : operation === register
        ? command.name === (one.file === "login_register_with_pat" ? one.file : "login_register")
        : command.operation === operation
  const found = commands.filter((command) => command.only !== "0.12").find(wanted)
  assert.ok(found, `no command has operation ${operation}, code ${code}`)
  return found
}
