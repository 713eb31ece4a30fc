import assert from "node:assert/strict"
import { createSecretKey } from "node:crypto"
import { test } from "node:test"
import { keyOf } from "./sealed-record.test-support.ts"
import { type KnownSubkey, SubkeyCache, subkeysKept } from "./subkey-cache.ts"

const subkey: KnownSubkey = {
  key: createSecretKey(keyOf(1)),
  prefix: Buffer.alloc(0),
  aad: Buffer.alloc(0),
  stream: "",
  topic: "",
}

test("a cache of subkeys keeps those that were used last, and no more than its bound", () => {
  const cache = new SubkeyCache()
  const made: string[] = []
  const use = (name: string): KnownSubkey =>
    cache.use(name, () => {
      made.push(name)
      return { ...subkey }
    })
  const first = use("0")
  for (let n = 1; n < subkeysKept; n++) use(String(n))
  assert.equal(use("0"), first)
  for (let n = 0; n < 500; n++) use(`more ${n}`)
  assert.equal(cache.size, subkeysKept)
  made.length = 0
  assert.equal(use("0"), first, "it was used after the others")
  use("1")
  assert.deepEqual(made, ["1"])
})
