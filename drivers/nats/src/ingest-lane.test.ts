import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import { type AppendResult, Headers, type MillraceError } from "@millrace/contract"
import { systemClock, systemRandom } from "@millrace/runtime"
import { NatsBatchWriter } from "./batch-writer.ts"
import { Connection } from "./connection.ts"
import { impostor, respond, speak } from "./impostor.test-support.ts"
import { IngestAnswers } from "./ingest-answers.ts"
import { IngestLane } from "./ingest-lane.ts"
import type { NatsSealedBatch } from "./sealed-batch.ts"

const timeout = 30_000
const subject = "millrace.s.t.0.00000000000000"
const target = { stream: "s", topic: "t", partition: 0, lineage: "00000000000000", subject }

function batchOf(count: number): NatsSealedBatch {
  const limits = { records: 1_000, bytes: 1_000_000 }
  const writer = new NatsBatchWriter(target, { limits, maxPayloadBytes: 1_048_576, allIds: false })
  const record = {
    payload: Buffer.from("x"),
    key: null,
    headers: Headers.empty,
    id: undefined,
    timestampMicros: undefined,
  }
  for (let index = 0; index < count; index++) writer.tryAppend(record)
  return writer.seal({ id: 1n << 64n, timestampMicros: 0n, resend: false })
}

/** What an append of so many records comes to when each message of an ingest is answered so. */
async function outcome(
  t: TestContext,
  count: number,
  answer: (sequence: number) => string | undefined,
): Promise<AppendResult | MillraceError> {
  const sids = new Map<string, number>()
  const port = await impostor(t, (socket) =>
    speak(socket, (line) => {
      const [, inbox, sid] = /^SUB (\S+)\.[>*] (\d+)$/.exec(line) ?? []
      if (inbox !== undefined) sids.set(inbox, Number(sid))
      const [, api] = /^PUB \$JS\.API\.INFO (\S+) 0$/.exec(line) ?? []
      if (api !== undefined) respond(socket, api, "{}")
      const [, reply, prefix, sequence] = /^PUB \S+ ((\S+?)\.\w+\.500\.fail\.(\d+)\.\d\.\$FI) /.exec(line) ?? []
      if (reply === undefined || prefix === undefined) return
      const text = answer(Number(sequence))
      if (text !== undefined) respond(socket, reply, text, sids.get(prefix))
    }),
  )
  const connection = await Connection.open(
    { scheme: "nats", hosts: [{ host: "127.0.0.1", port }], path: "", options: { requestTimeout: 300 } },
    { timeoutMs: 5_000 },
    { clock: systemClock, random: systemRandom },
  )
  t.after(() => connection.close())
  const lane = new IngestLane({
    connection,
    answers: new IngestAnswers(connection),
    subject,
    idle: () => {},
    explainSilence: () => assert.fail("nobody was silent"),
  })
  const { promise, resolve, reject } = Promise.withResolvers<AppendResult>()
  lane.append({ batch: batchOf(count), count, resolve, reject })
  return promise.catch((error: MillraceError) => error)
}

test("answers that mean nothing leave the batch in doubt, as a protocol error", { timeout }, async (t) => {
  for (const garbage of [
    "[",
    "null",
    "7",
    '"x"',
    "{}",
    '{"type":"ack"}',
    '{"type":"ack","seq":-1,"msgs":0}',
    '{"count":-5}',
    '{"type":"new"}',
  ]) {
    const error = await outcome(t, 3, () => garbage)
    assert.ok(error instanceof Error, garbage)
    assert.deepEqual([error.kind, error.outcome], ["protocol", "unknown"], garbage)
  }
})

test("silence of the server is a time-out that leaves the batch in doubt", { timeout }, async (t) => {
  const error = await outcome(t, 3, () => undefined)
  assert.ok(error instanceof Error)
  assert.deepEqual([error.kind, error.outcome, error.retryable], ["timeout", "unknown", true])
})

test("the server's own refusals are typed, and nothing of the batch was stored", { timeout }, async (t) => {
  const refusals = [
    ['{"error":{"code":503,"err_code":10023,"description":"insufficient resources"}}', "disk-full"],
    ['{"error":{"code":429,"err_code":10211,"description":"too many inflight"}}', "throttled"],
    [
      '{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}',
      "record-too-large",
    ],
    ['{"error":{"code":400,"err_code":10205,"description":"batch publish is disabled"}}', "invalid"],
  ] as const
  for (const [answer, kind] of refusals) {
    const error = await outcome(t, 3, (sequence) => (sequence === 1 ? answer : undefined))
    assert.ok(error instanceof Error)
    assert.deepEqual([error.kind, error.outcome], [kind, "rejected"])
  }
})

test("the final answer confirms what it counts", { timeout }, async (t) => {
  const all = await outcome(t, 3, (sequence) =>
    sequence === 3 ? '{"stream":"S","seq":9,"batch":"b","count":3}' : undefined,
  )
  assert.deepEqual(all, { contiguous: false, duplicates: 0 })
  const some = await outcome(t, 3, (sequence) =>
    sequence === 3 ? '{"stream":"S","seq":8,"batch":"b","count":2}' : undefined,
  )
  assert.ok(some instanceof Error)
  assert.equal(some.outcome, "unknown")
})
