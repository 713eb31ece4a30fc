import assert from "node:assert/strict"
import { test } from "node:test"
import { checkFilter } from "@millrace/contract"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { previewFilter } from "./filter-preview.ts"

test("a preview with a costly pattern answers what it has, and where to go on", async () => {
  const client = new FakeClient()
  const text = "q".repeat(20_000)
  const payload = new TextEncoder().encode(JSON.stringify({ text }))
  client.log.put(
    client.place(),
    Array.from({ length: 20 }, () => ({ payload })),
  )
  const filter = checkFilter({ where: { path: "text", op: "regex", value: "^.{400}x" } })
  const of = { group: { ...client.topic, group: "g" }, partition: 0, what: "the filter", choose: async () => filter }
  let from = 0n
  for (const examined of [9, 9, 2]) {
    const preview = await previewFilter(client.context, of, { fromOffset: from })
    assert.deepEqual([preview.examined, preview.nextOffset], [examined, from + BigInt(examined)])
    from = preview.nextOffset
  }
})
