/** Promises of a spool that hold although something takes its time: the disk, an answer, a record ahead. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { DiskFullError, type MillraceError, PermissionError } from "@millrace/contract"
import { fakeManifest } from "../producer/fake-backend.test-support.ts"
import { bytes, SpoolRig } from "./spool-rig.test-support.ts"

test("no attempt of a batch goes out before the journal has it, however long that takes", async () => {
  const rig = new SpoolRig({ manifest: fakeManifest({ dedup: "none", identityScope: "none" }) })
  const { producer, process } = rig.live()
  await rig.run(producer.init())
  await rig.run(producer.send(bytes("first")))
  await rig.run(producer.flush())
  await rig.clock.advance(1_000)
  process.refuses = (topic) => (topic === "journal" ? new DiskFullError("full") : undefined)
  await rig.run(producer.send(bytes("a")))
  // Several attempts' worth of time.
  await rig.clock.advance(200_000)
  assert.deepEqual(rig.backend.texts("t"), ["first"])
  process.refuses = () => undefined
  await rig.run(producer.flush())
  assert.deepEqual(rig.backend.texts("t"), ["first", "a"])
  await rig.run(producer.shutdown())
})

test("a delivery whose record reaches the disk after the deadline of a shutdown settles, with an outcome that is open", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "refuse" })
  const { producer, process } = rig.live()
  await rig.run(producer.send(bytes("a")))
  process.refuses = (topic) => (topic === "lane-0" ? new DiskFullError("full") : undefined)
  const delivery = producer.sendAndConfirm(bytes("b"))
  const kept = delivery.then(
    () => assert.fail("nothing was confirmed"),
    (error: MillraceError) => error,
  )
  await rig.clock.advance(1)
  process.refuses = () => undefined
  await rig.run(producer.shutdown({ timeoutMs: 0 }).catch(() => {}))
  const error = await rig.run(kept)
  const next = rig.live()
  rig.backend.fate = () => ({})
  await rig.run(next.producer.flush())
  const isStored = rig.backend.texts("t").includes("b")
  assert.equal(error.outcome, isStored ? "unknown" : "rejected")
  await rig.run(next.producer.shutdown())
})

test("what onError has taken is the program's, also when the process ends before a record ahead is delivered", async () => {
  const rig = new SpoolRig({ partitions: 2 })
  rig.backend.largestPayloadBytes = 5
  rig.backend.fate = (_, partition) => (partition === 0 ? { outcome: "refuse" } : {})
  const told: string[] = []
  const onError = ({
    unconfirmed,
  }: {
    readonly unconfirmed: readonly { readonly payload: Uint8Array | null }[]
  }): void => {
    for (const { payload } of unconfirmed) told.push(Buffer.from(payload ?? []).toString())
  }
  const first = rig.live({ onError })
  await rig.run(first.producer.send(bytes("ahead"), { partition: 0 }))
  await rig.run(first.producer.send(bytes("too large"), { partition: 1 }))
  await rig.until(() => told.length > 0)
  await assert.rejects(rig.run(first.producer.shutdown({ timeoutMs: 100 })))
  rig.backend.fate = () => ({})
  rig.backend.largestPayloadBytes = Number.POSITIVE_INFINITY
  const second = rig.live({ onError })
  await rig.run(second.producer.flush())
  assert.deepEqual(told, ["too large"])
  assert.deepEqual([rig.backend.texts("t", 0), rig.backend.texts("t", 1)], [["ahead"], []])
  await rig.run(second.producer.shutdown())
})

test("a topic that cannot be described after a restart leaves what was on its way in doubt, and counted", async () => {
  const rig = new SpoolRig()
  rig.backend.fate = () => ({ outcome: "lose" })
  const first = rig.live()
  await rig.run(first.producer.send(bytes("a")))
  await rig.until(() => rig.backend.texts("t").length > 0)
  first.process.isDead = true
  await rig.clock.advance(10)
  rig.backend.fate = () => ({})
  let refusals = 1
  rig.backend.failDescribe = () => (refusals-- > 0 ? new PermissionError("not allowed") : undefined)
  const second = rig.live()
  await rig.run(second.producer.flush())
  const doubled = rig.backend.texts("t").length - 1
  assert.ok(second.producer.spool.depth().possiblyDoubled >= doubled, `${doubled} are doubled`)
  assert.equal(second.producer.spool.depth().possiblyDoubled, 1)
  await rig.run(second.producer.shutdown())
})
