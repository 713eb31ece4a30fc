import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { connect, json } from "millrace"
import { isOneToOne, LedgerReader, typedLedger } from "./ledger.ts"

/** How many entries each of a few flights has. */
const entered = fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 12 })

test("missing and repeated entries are counted, and only one for each is one to one", async () => {
  await using client = await connect("memory:")
  let run = 0
  await fc.assert(
    fc.asyncProperty(entered, async (times) => {
      const stream = client.stream(`run-${run++}`)
      const flights = stream.topic("flights")
      const ledger = stream.topic("ledger")
      await flights.ensure(1)
      await ledger.ensure(2)
      await flights.producer().sendBatch(times.map(() => new Uint8Array(1)))
      const entries = times.flatMap((count, offset) =>
        Array.from({ length: count }, () => ({ partition: 0, offset: String(offset), airport: "ATL", delay: offset })),
      )
      await using reader = await LedgerReader.open(ledger)
      await reader.catchUp()
      if (entries.length > 0) await typedLedger(ledger).producer().sendBatch(entries)
      await reader.catchUp()
      const balance = await reader.balance(flights)
      const { table, ...counts } = balance
      assert.deepEqual(counts, {
        flights: times.length,
        entries: entries.length,
        missing: times.filter((count) => count === 0).length,
        twice: times.filter((count) => count > 1).length,
      })
      assert.equal(table.count, entries.length)
      assert.equal(
        isOneToOne(balance),
        times.every((count) => count === 1),
      )
    }),
    { numRuns: 50 },
  )
})

test("an entry of a flight that is not there is not one to one", async () => {
  await using client = await connect("memory:")
  const flights = client.stream("s").topic("flights")
  const ledger = client.stream("s").topic("ledger")
  await flights.ensure(1)
  await ledger.ensure(1)
  await flights.publish().payload(new Uint8Array(1)).send()
  for (const offset of ["0", "1"]) await typedLedger(ledger).publish({ partition: 0, offset, airport: "ATL", delay: 1 })
  await using reader = await LedgerReader.open(ledger)
  await reader.catchUp()
  assert.equal(isOneToOne(await reader.balance(flights)), false)
})

test("what is no entry is refused, naming the field", async () => {
  await using client = await connect("memory:")
  const ledger = client.stream("s").topic("ledger")
  await ledger.ensure(1)
  const entry = { partition: 0, offset: "0", airport: "ATL", delay: 1 }
  for (const [field, value] of [
    ["partition", "0"],
    ["offset", 0],
    ["airport", undefined],
    ["delay", 1.5],
  ] as const) {
    await ledger.purge()
    await ledger.json(json<object>(Object)).publish({ ...entry, [field]: value })
    await using reader = await LedgerReader.open(ledger)
    await assert.rejects(reader.catchUp(), new RegExp(`"${field}"`))
  }
})
