import assert from "node:assert/strict"
import { test } from "node:test"
import { parseCommand } from "./command-line.ts"

test("the command says what to run", () => {
  assert.deepEqual(parseCommand([]), { kind: "seeds", from: 1, count: 2000, only: undefined })
  const some = parseCommand(["--seeds", "5", "--from", "7", "--only", "consumers"])
  assert.deepEqual(some, { kind: "seeds", from: 7, count: 5, only: "consumers" })
  const all = { kind: "seeds", from: 1, count: Number.POSITIVE_INFINITY, only: undefined }
  assert.deepEqual(parseCommand(["--forever"]), all)
  assert.deepEqual(parseCommand(["--seed", "9", "--trace"]), { kind: "seed", seed: 9, trace: true, only: undefined })
  assert.deepEqual(parseCommand(["--mutants", "one", "two"]), { kind: "mutants", seeds: 1500, names: ["one", "two"] })
})

test("what it does not know is refused", () => {
  assert.throws(() => parseCommand(["--seeds", "many"]), /--seeds many is not a whole number/)
  assert.throws(() => parseCommand(["--seeds", "-1"]))
  assert.throws(() => parseCommand(["--sead", "1"]), /sead/)
  assert.throws(
    () => parseCommand(["--only", "readers"]),
    /none of producers, consumers, queues, transactions, schemas/,
  )
  assert.throws(() => parseCommand(["5"]), /"5" is not an option/)
})
