import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import { type AppendResult, Headers, MillraceError } from "@millrace/contract"
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

type Answers = (sequence: number) => string | undefined

/** A lane over a server that answers each message of an ingest so; within 300 ms, or not at all. */
async function laneOver(
  t: TestContext,
  answer: Answers,
  explainSilence: () => Promise<MillraceError> = () => assert.fail("nobody was silent"),
): Promise<IngestLane> {
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
  return new IngestLane({ connection, answers: new IngestAnswers(connection), subject, idle: () => {}, explainSilence })
}

function append(lane: IngestLane, count: number): Promise<AppendResult | MillraceError> {
  const { promise, resolve, reject } = Promise.withResolvers<AppendResult>()
  lane.append({ batch: batchOf(count), count, resolve, reject })
  return promise.catch((error: MillraceError) => error)
}

/** What an append of so many records comes to. */
async function outcome(t: TestContext, count: number, answer: Answers): Promise<AppendResult | MillraceError> {
  return append(await laneOver(t, answer), count)
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

test("why nobody listened to one ingest says nothing of the next: what was sent since is in doubt", {
  timeout,
}, async (t) => {
  const asked = Promise.withResolvers<void>()
  const explained = Promise.withResolvers<MillraceError>()
  const said: string[] = [""]
  const lane = await laneOver(
    t,
    () => said.pop(),
    () => {
      asked.resolve()
      return explained.promise
    },
  )
  const first = append(lane, 3)
  await asked.promise
  const late = await first
  assert.ok(late instanceof Error)
  assert.deepEqual([late.kind, late.outcome], ["timeout", "unknown"])
  const second = await sentFor(lane)
  explained.resolve(new MillraceError("not-leader", "the stream does not answer at present"))
  const doubtful = await second.settled
  assert.ok(doubtful instanceof Error)
  assert.deepEqual([doubtful.kind, doubtful.outcome], ["timeout", "unknown"])
})

/** An append that went out: as long as the failure before it is told, a lane refuses what comes, to guard the order. */
async function sentFor(lane: IngestLane): Promise<{ readonly settled: ReturnType<typeof append> }> {
  for (;;) {
    const settled = append(lane, 3)
    const turn = new Promise<undefined>((resolve) => setTimeout(resolve, 20, undefined))
    const early = await Promise.race([settled, turn])
    if (early === undefined) return { settled }
    assert.ok(early instanceof Error && early.outcome === "rejected")
    await turn
  }
}
