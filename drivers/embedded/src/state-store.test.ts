import assert from "node:assert/strict"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, it, type TestContext } from "node:test"
import {
  ClosedError,
  FencedError,
  InvalidError,
  RecordTooLargeError,
  type Session,
  stateKeyBytes,
  stateValueBytes,
} from "@millrace/contract"
import { openSession } from "./trials/trial-log.ts"

const text = (value: string): Uint8Array => Buffer.from(value)

async function sessions(t: TestContext, count: number): Promise<Session[]> {
  const directory = mkdtempSync(join(tmpdir(), "millrace-test-"))
  const opened = [await openSession(directory)]
  for (let i = 1; i < count; i++) opened.push(await openSession(directory))
  t.after(async () => {
    for (const session of opened) await session.close()
    rmSync(directory, { recursive: true, force: true })
  })
  return opened
}

describe("The small state of a session", () => {
  it("is seen by every session, and changed by one of several that expect the same revision", async (t) => {
    const [one, two] = (await sessions(t, 2)) as [Session, Session]
    const { revision } = await one.state.put("k", text("1"), {})
    assert.equal((await two.state.get("k"))?.revision, revision)
    const changes = [one, two, one, two].map((session, i) =>
      session.state.put("k", text(`${i}`), { ifRevision: revision }),
    )
    const outcomes = await Promise.allSettled(changes)
    assert.equal(outcomes.filter(({ status }) => status === "fulfilled").length, 1)
    for (const outcome of outcomes)
      if (outcome.status === "rejected") {
        assert.ok(outcome.reason instanceof FencedError)
        assert.ok((outcome.reason.context.revision as bigint) > revision)
      }
  })

  it("refuses what is too large or no text, and keeps what is just not", async (t) => {
    const [session] = (await sessions(t, 1)) as [Session]
    const { state } = session
    await assert.rejects(state.put("k", new Uint8Array(stateValueBytes + 1), {}), RecordTooLargeError)
    await state.put("k", new Uint8Array(stateValueBytes).fill(3), {})
    assert.equal((await state.get("k"))?.value.length, stateValueBytes)
    await state.put("x".repeat(stateKeyBytes), text(""), {})
    await assert.rejects(state.put("ä".repeat(stateKeyBytes / 2 + 1), text(""), {}), InvalidError)
    await assert.rejects(state.get(""), InvalidError)
    await assert.rejects(state.put("\ud800", text(""), {}), InvalidError)
    const [first] = await state.list("k")
    assert.equal(first?.key, "k")
  })

  it("tells a watch of changes of this session and another, until its loop or its session ends", async (t) => {
    const [one, two] = (await sessions(t, 2)) as [Session, Session]
    await one.state.put("w/0", text("0"), {})
    const seen: string[] = []
    for await (const change of one.state.watch("w/")) {
      seen.push("deleted" in change ? `-${change.key}` : change.key)
      if (seen.length === 1) await two.state.put("w/1", text("1"), {})
      if (seen.length === 2) await one.state.delete("w/0", {})
      if (seen.length === 3) break
    }
    assert.deepEqual(seen, ["w/0", "w/1", "-w/0"])
    const watch = one.state.watch("none/")[Symbol.asyncIterator]()
    const waiting = [watch.next(), watch.next()]
    assert.deepEqual(await watch.return?.(), { value: undefined, done: true })
    for (const next of waiting) assert.deepEqual(await next, { value: undefined, done: true })
    const loop = (async () => {
      for await (const change of two.state.watch("")) seen.push(change.key)
      return "ended"
    })()
    await two.close()
    assert.equal(await loop, "ended")
    await assert.rejects(two.state.get("k"), ClosedError)
  })
})
