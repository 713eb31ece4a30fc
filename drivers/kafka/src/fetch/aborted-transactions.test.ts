import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { AbortedTransactions, type MarkedBatch } from "./aborted-transactions.ts"

/** `7@10-12`: records of producer 7 at 10 to 12 in a transaction; `7@13 abort`: its marker; `plain@14`: outside of any. */
function batch(text: string): MarkedBatch {
  const found = /^(\d+|plain)@(\d+)(?:-(\d+))?( abort| commit)?$/.exec(text)
  if (found === null) throw new Error(text)
  const [, producer, first, last, marker] = found
  const plain = producer === "plain"
  return {
    firstOffset: BigInt(first as string),
    lastOffset: BigInt(last ?? (first as string)),
    control: marker !== undefined,
    transactional: !plain,
    producerId: plain ? -1n : BigInt(producer as string),
    // The key of a control record: version 0, then the type: 0 abort, 1 commit (KIP-98).
    key: () => (marker === undefined ? null : Uint8Array.of(0, 0, 0, marker === " abort" ? 0 : 1)),
  }
}

function shown(batches: readonly string[], aborted: readonly (readonly [producer: bigint, first: bigint])[]): string[] {
  const transactions = new AbortedTransactions(
    aborted.map(([producerId, firstOffset]) => ({ producerId, firstOffset })),
  )
  return batches.filter((text) => !transactions.hides(batch(text)))
}

describe("aborted transactions", () => {
  test("several of one producer in one answer, with a committed one between", () => {
    const log = ["7@0-1", "7@2 abort", "7@3-4", "7@5 commit", "7@6-9", "7@10 abort", "7@11", "7@12 abort", "7@13"]
    assert.deepEqual(
      shown(log, [
        [7n, 0n],
        [7n, 6n],
        [7n, 11n],
      ]),
      ["7@3-4", "7@13"],
    )
  })

  test("one whose marker lies behind the answer stays hidden to its end", () => {
    assert.deepEqual(shown(["7@0-3", "8@4", "7@5"], [[7n, 0n]]), ["8@4"])
  })

  test("one that began before the answer", () => {
    assert.deepEqual(shown(["7@20", "7@21 abort", "7@22"], [[7n, 3n]]), ["7@22"])
  })

  test("producers side by side, records outside of transactions, and a list that is not in order", () => {
    const log = ["7@0", "8@1", "plain@2", "7@3 abort", "8@4", "7@5", "8@6 abort", "7@7 commit", "8@8"]
    assert.deepEqual(
      shown(log, [
        [8n, 1n],
        [7n, 0n],
      ]),
      ["plain@2", "7@5", "8@8"],
    )
  })

  test("markers are never for readers", () => {
    assert.deepEqual(shown(["7@0", "7@1 commit"], []), ["7@0"])
  })
})
