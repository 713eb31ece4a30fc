import assert from "node:assert/strict"
import { test } from "node:test"
import { acceptInGroups, confirmInGroups, groupRecords, sendOneByOne } from "./load.ts"

/** Sends whose promises settle only when they are asked to, with how many were made. */
function heldSends(): { readonly send: () => Promise<void>; readonly made: () => number; settle(): void } {
  let held: (() => void)[] = []
  let made = 0
  return {
    send: () => {
      made++
      return new Promise((resolve) => void held.push(resolve))
    },
    made: () => made,
    settle() {
      const group = held
      held = []
      for (const resolve of group) resolve()
    },
  }
}

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve))

for (const [name, load] of Object.entries({ acceptInGroups, confirmInGroups })) {
  test(`${name} begins no group before the one ahead has settled, and sends exactly as many as asked`, async () => {
    const { send, made, settle } = heldSends()
    let done = false
    const running = load(groupRecords + 7, send).then(() => {
      done = true
    })
    await turn()
    assert.equal(made(), groupRecords)
    settle()
    await turn()
    assert.equal(made(), groupRecords + 7)
    assert.equal(done, false, "the last group is waited for")
    settle()
    await running
  })
}

test("a send that is never confirmed keeps its group from ending", async () => {
  let sent = 0
  let done = false
  void confirmInGroups(groupRecords, () => (++sent === 5 ? new Promise(() => {}) : Promise.resolve())).then(() => {
    done = true
  })
  await turn()
  assert.equal(sent, groupRecords)
  assert.equal(done, false)
})

test("one by one, a send that fails is the last", async () => {
  let sent = 0
  const failing = sendOneByOne(10, () => (++sent === 3 ? Promise.reject(new Error("refused")) : Promise.resolve()))
  await assert.rejects(failing, /refused/)
  assert.equal(sent, 3)
})
