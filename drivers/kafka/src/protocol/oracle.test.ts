/** Our messages beside those of Kafka's own classes. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { codecOf, correlationIdOf } from "./api.ts"
import type { Struct } from "./codec.ts"
import { answerFrame, everyApi } from "./every-api.test-support.ts"
import { consumerProtocolAssignmentSchema, consumerProtocolSubscriptionSchema } from "./messages.generated.ts"
import { askOracle, oracleNeed } from "./oracle.test-support.ts"
import { randomMessage } from "./random-message.test-support.ts"
import { Reader } from "./reader.ts"
import type { MessageSchema } from "./schema.ts"
import { Writer } from "./writer.ts"

const messagesEach = 12
const header = { correlationId: -7, clientId: "a-client-é" }

interface Question {
  readonly about: string
  readonly line: string
  readonly sent: string
  readonly message: Struct
}

test("every message in every version is read by Kafka's classes and comes back byte for byte", async (t) => {
  const reason = await oracleNeed()
  if (reason !== undefined) {
    t.skip(`needs kafka: ${reason}`)
    return
  }
  const questions = [...allQuestions()]
  const answers = await askOracle(questions.map(({ line }) => line))
  for (const [i, { about, sent, message }] of questions.entries()) {
    const [bytes, ...json] = (answers[i] as string).split(" ")
    assert.equal(bytes, sent, `${about}: ${answers[i]}`)
    compare(message, parseExactly(json.join(" ")), about)
  }
  t.diagnostic(`${questions.length} messages`)
})

function* allQuestions(): Generator<Question> {
  let seed = 1
  for (const api of everyApi()) {
    for (let version = api.min; version <= api.max; version++) {
      for (let i = 0; i < messagesEach; i++) {
        const request = randomMessage(api.request, version, seed++)
        const frame = hexOf(Buffer.concat(api.encode(request, version, header)).subarray(4))
        yield {
          about: `${api.name} request version ${version}`,
          line: `frame ${api.request.name} ${frame}`,
          sent: frame,
          message: request,
        }
        yield bodyQuestion(api.response, version, seed++)
      }
    }
  }
  for (const schema of [consumerProtocolSubscriptionSchema, consumerProtocolAssignmentSchema]) {
    for (let version = schema.versions[0]; version <= schema.versions[1]; version++) {
      for (let i = 0; i < messagesEach; i++) yield bodyQuestion(schema, version, seed++)
    }
  }
}

function bodyQuestion(schema: MessageSchema, version: number, seed: number): Question {
  const message = randomMessage(schema, version, seed)
  const writer = new Writer()
  const codec = codecOf(schema, version)
  codec.write(writer, message)
  const bytes = Buffer.concat(writer.chunks())
  const again = codec.read(new Reader(bytes))
  for (const [name, value] of Object.entries(message)) assertSame(again[name], value, `${schema.name} ${name}`)
  return {
    about: `${schema.name} version ${version}`,
    line: `body ${schema.name} ${version} ${hexOf(bytes)}`,
    sent: hexOf(bytes),
    message,
  }
}

/** A field that is tagged and was left out has its initial value when it comes back; all others are as they were. */
function assertSame(found: unknown, sent: unknown, about: string): void {
  if (Array.isArray(sent)) {
    assert.ok(Array.isArray(found) && found.length === sent.length, about)
    for (const [i, item] of sent.entries()) assertSame(found[i], item, about)
  } else if (sent instanceof Uint8Array) {
    assert.ok(found instanceof Uint8Array && Buffer.compare(sent, found) === 0, about)
  } else if (typeof sent === "object" && sent !== null) {
    for (const [name, value] of Object.entries(sent)) assertSame((found as Struct)[name], value, `${about}.${name}`)
  } else {
    assert.equal(found, sent, about)
  }
}

/** Kafka's JSON names every field of the version, but tagged ones only when they differ from the default. Bytes are base64; records are left out. */
function compare(message: Struct, json: Record<string, unknown>, about: string): void {
  for (const [name, value] of Object.entries(json)) {
    if (!(name in message) || name === "records") continue
    compareValue(message[name], value, `${about}: ${name}`)
  }
}

function compareValue(sent: unknown, json: unknown, about: string): void {
  if (Array.isArray(sent)) {
    assert.ok(Array.isArray(json) && json.length === sent.length, about)
    for (const [i, item] of sent.entries()) compareValue(item, json[i], about)
  } else if (sent instanceof Uint8Array) {
    assert.equal(json, Buffer.from(sent).toString("base64"), about)
  } else if (typeof sent === "object" && sent !== null) {
    compare(sent as Struct, json as Record<string, unknown>, about)
  } else {
    assert.equal(String(json), String(sent), about)
  }
}

/** JSON with whole numbers as text, so that none loses a digit. */
function parseExactly(text: string): Record<string, unknown> {
  const exact = ((_key: string, value: unknown, context: { readonly source: string }) =>
    typeof value === "number" ? context.source : value) as (key: string, value: unknown) => unknown
  return JSON.parse(text, exact)
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex")
}

test("a response is told from its header", () => {
  for (const api of everyApi()) {
    for (let version = api.min; version <= api.max; version++) {
      const message = randomMessage(api.response, version, version + 1)
      // One tag that nobody knows, of two bytes.
      const tags = Uint8Array.of(1, 9, 2, 0xff, 0xff)
      const frame = answerFrame(api, version, { message, correlationId: -7, tags })
      assert.equal(correlationIdOf(frame), -7)
      assertSame(api.decode(frame, version), message, `${api.name} ${version}`)
    }
  }
})
