import assert from "node:assert/strict"
import { test } from "node:test"
import { HistoryChangedError } from "@millrace/contract"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { type RangeRead, readLogRange } from "./log-range.ts"

const decoder = new TextDecoder()

async function read(
  client: FakeClient,
  range: { readonly from: bigint; readonly end: bigint; readonly enough?: () => boolean },
): Promise<RangeRead & { readonly seen: string[] }> {
  const seen: string[] = []
  const { session } = client.context
  const from = { ...client.place(), offset: range.from, lineage: "a" }
  const reading = readLogRange(
    session,
    { from, end: range.end, enough: range.enough ?? (() => false) },
    (batch, index) => seen.push(decoder.decode(batch.payload(index) as Uint8Array)),
  )
  await client.clock.advance(1000)
  return { ...(await reading), seen }
}

test("records come in order from the offset on, also from within a batch, and the reader is closed", async () => {
  const client = new FakeClient()
  client.put(0, 4)
  client.put(4, 6)
  assert.deepEqual(await read(client, { from: 2n, end: 6n }), {
    seen: ["2", "3", "4", "5"],
    next: 6n,
    error: undefined,
  })
  assert.equal(client.log.readers.size, 0)
})

test("an empty range asks nothing", async () => {
  const client = new FakeClient()
  assert.deepEqual(await read(client, { from: 0n, end: 0n }), { seen: [], next: 0n, error: undefined })
  assert.equal(client.log.polls, 0)
})

test("it ends when there is enough, and where the partition has gone", async () => {
  const client = new FakeClient()
  client.put(0, 4)
  assert.deepEqual(await read(client, { from: 0n, end: 4n, enough: () => true }), {
    seen: [],
    next: 0n,
    error: undefined,
  })
  client.log.purge(client.place(), "b")
  const gone = await read(client, { from: 0n, end: 4n })
  assert.ok(gone.error instanceof HistoryChangedError)
  assert.equal(gone.next, 0n)
  assert.equal(client.log.readers.size, 0)
})
