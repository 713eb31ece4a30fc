/** What a spool promises when processes are killed: at every step, and at random ones over a backend that loses and delays. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { ConnectionError, type Manifest, PermissionError } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import fc from "fast-check"
import { type Fate, fakeManifest } from "../producer/fake-backend.test-support.ts"
import type { PublishFailedError } from "../producer/publish-failed.ts"
import type { DiskProcess } from "./fake-disk.test-support.ts"
import { bytes, type Life, SpoolRig } from "./spool-rig.test-support.ts"

const keys = ["k0", "k1", "k2", "k3"]
const sequenced = fakeManifest()
const byIds = fakeManifest({
  dedup: "idWindow",
  inFlight: { offsets: 1, stored: 1 },
  windowMs: 120_000,
  identityScope: "none",
  idLookup: "window",
})

/** What was sent, in order: accepted, or cut off before anybody knew. */
class Ledger {
  readonly accepted: Set<string> = new Set()
  readonly sent: string[] = []
  readonly #pending: Set<Promise<unknown>> = new Set()

  send(life: Life, count: number): void {
    for (let i = 0; i < count; i++) {
      const key = keys[this.sent.length % keys.length] as string
      const text = `${key} ${this.sent.length}`
      this.sent.push(text)
      const promise = life.producer.send(bytes(text), { key }).then(
        () => void this.accepted.add(text),
        () => {},
      )
      this.#pending.add(promise)
    }
  }

  /** Every accepted record is there once, none is there twice, and those of a key stand in the order of the calls. */
  check(rig: SpoolRig, partitions: number): void {
    const stored = Array.from({ length: partitions }, (_, partition) => rig.backend.texts("t", partition)).flat()
    const times = new Map<string, number>()
    for (const text of stored) times.set(text, (times.get(text) ?? 0) + 1)
    for (const text of this.accepted) assert.equal(times.get(text) ?? 0, 1, `"${text}" was accepted; stored once`)
    for (const text of stored) assert.equal(times.get(text), 1, `"${text}" is there once`)
    for (const key of keys) {
      const own = stored.filter((text) => text.startsWith(`${key} `)).map((text) => Number(text.split(" ")[1]))
      assert.deepEqual(
        own,
        [...own].sort((a, b) => a - b),
        `order of ${key}`,
      )
    }
  }
}

/** Kills at a step of a life, counted from 0. */
function killAt(step: number, when: "before" | "behind"): (process: DiskProcess) => void {
  return (process) => {
    let count = 0
    process.kills = (_, moment) => moment === when && count++ === step
  }
}

async function lastLife(rig: SpoolRig): Promise<Life> {
  const life = rig.live({ batchLength: 4 })
  await rig.run(life.producer.flush())
  assert.equal(life.producer.spool.depth().possiblyDoubled, 0)
  await rig.run(life.producer.shutdown())
  return life
}

async function scenario(rig: SpoolRig, life: Life, ledger: Ledger): Promise<void> {
  for (let round = 0; round < 3; round++) {
    ledger.send(life, 10)
    await rig.clock.advance(20)
  }
  await rig.clock.advance(2_000)
}

for (const [name, manifest] of [
  ["sequences", sequenced],
  ["ids", byIds],
] as const) {
  test(`killed before or behind any step, nothing accepted is lost and nothing doubled (${name})`, async () => {
    for (const fate of [{ answerMs: 7 }, { delayMs: 5, outcome: "lose" }] as const satisfies readonly Fate[]) {
      for (const when of ["before", "behind"] as const) {
        for (let step = 0; ; step++) {
          const rig = newRig(manifest)
          rig.backend.fate = (append) => (append % 2 === 0 ? fate : {})
          const ledger = new Ledger()
          const life = rig.live({ batchLength: 4 }, {}, killAt(step, when))
          await scenario(rig, life, ledger)
          if (!life.process.isDead) {
            assert.ok(step > 20, `only ${step} steps`)
            break
          }
          rig.backend.fate = () => ({})
          await lastLife(rig)
          ledger.check(rig, 3)
        }
      }
    }
  })
}

function newRig(manifest: Manifest): SpoolRig {
  const rig = new SpoolRig({ manifest, partitions: 3 })
  rig.backend.recognisesIds = manifest.append.dedup === "idWindow"
  return rig
}

test("killed again and again over a backend that loses, delays and refuses, nothing is lost, doubled or out of order", async () => {
  const life = fc.record({
    kill: fc.integer({ min: 0, max: 60 }),
    when: fc.constantFrom("before" as const, "behind" as const),
    sends: fc.array(fc.integer({ min: 0, max: 12 }), { minLength: 1, maxLength: 4 }),
    pauseMs: fc.integer({ min: 0, max: 400 }),
  })
  const plan = fc.record({
    seed: fc.integer(),
    lives: fc.array(life, { minLength: 1, maxLength: 5 }),
    trouble: fc.integer({ min: 0, max: 70 }),
    ids: fc.boolean(),
    // Of a batch, beyond which it has to be split.
    largest: fc.constantFrom(2, 100),
  })
  await fc.assert(
    fc.asyncProperty(plan, async ({ seed, lives, trouble, ids, largest }) => {
      const rig = newRig(ids ? byIds : sequenced)
      rig.backend.largestBatch = largest
      const random = seededRandom(seed)
      const fates: readonly Fate[] = [
        { outcome: "lose", delayMs: 3 },
        { outcome: "vanish", answerMs: 10 },
        { outcome: "refuse" },
        { delayMs: 30, answerMs: 30 },
        { outcome: "refuse", error: new ConnectionError("gone") },
      ]
      rig.backend.fate = () =>
        random.uint32() % 100 < trouble ? (fates[random.uint32() % fates.length] as Fate) : { answerMs: 2 }
      const ledger = new Ledger()
      for (const { kill, when, sends, pauseMs } of lives) {
        const one = rig.live({ batchLength: 3 }, {}, killAt(kill, when))
        for (const count of sends) {
          ledger.send(one, count)
          await rig.clock.advance(pauseMs)
        }
        // Alive or not, it is gone now.
        one.process.isDead = true
        await rig.clock.advance(1)
      }
      rig.backend.fate = () => ({})
      await lastLife(rig)
      ledger.check(rig, 3)
    }),
    { numRuns: 150 },
  )
})

const down: Fate = { outcome: "lose" }

test("a batch whose window has passed goes out again and is counted, or is reported, as onExpired says", async () => {
  for (const onExpired of ["resend", "report"] as const) {
    const rig = newRig(byIds)
    rig.backend.fate = () => down
    const first = rig.live({ spool: { onExpired } })
    await rig.run(first.producer.send(bytes("k0 0"), { key: "k0" }))
    await rig.until(() => rig.backend.appends.length > 0)
    first.process.isDead = true
    await rig.clock.advance(200_000)
    rig.backend.fate = () => ({})
    const failures: PublishFailedError[] = []
    const second = rig.live({ spool: { onExpired }, onError: (error) => void failures.push(error) })
    await rig.run(second.producer.flush())
    if (onExpired === "resend") {
      assert.equal(second.producer.spool.depth().possiblyDoubled, 1)
      assert.equal(failures.length, 0)
    } else {
      assert.equal(second.producer.spool.depth().possiblyDoubled, 0)
      assert.deepEqual(
        failures.map(({ outcome, unconfirmed }) => [outcome, unconfirmed.length]),
        [["unknown", 1]],
      )
      assert.equal(rig.backend.appends.length, 1)
    }
    await rig.run(second.producer.shutdown())
  }
})

test("in one life too a batch that cannot be recognised any more goes out again and is counted, or is reported", async () => {
  for (const onExpired of ["resend", "report"] as const) {
    const rig = newRig(byIds)
    rig.backend.fate = () => ({ outcome: "vanish" })
    const failures: PublishFailedError[] = []
    const { producer } = rig.live({ spool: { onExpired }, onError: (error) => void failures.push(error) })
    await rig.run(producer.send(bytes("k0 0"), { key: "k0" }))
    await rig.clock.advance(200_000)
    rig.backend.fate = () => ({})
    await rig.run(producer.flush())
    assert.equal(producer.spool.depth().possiblyDoubled > 0, onExpired === "resend")
    assert.deepEqual(
      failures.map(({ outcome }) => outcome),
      onExpired === "resend" ? [] : ["unknown"],
    )
    await rig.run(producer.shutdown())
  }
})

test("a backend that recognises nothing may have a record twice, which is counted, and never less than once", async () => {
  const rig = newRig(
    fakeManifest({ dedup: "none", inFlight: { offsets: 1, stored: 1 }, identityScope: "none", idLookup: "none" }),
  )
  rig.backend.fate = () => down
  const first = rig.live()
  await rig.run(first.producer.send(bytes("k0 0"), { key: "k0" }))
  await rig.until(() => rig.backend.appends.length > 0)
  first.process.isDead = true
  await rig.clock.advance(1_000)
  rig.backend.fate = () => ({})
  const second = rig.live()
  await rig.run(second.producer.flush())
  assert.equal(second.producer.spool.depth().possiblyDoubled, 1)
  const stored = [0, 1, 2].flatMap((partition) => rig.backend.texts("t", partition))
  assert.deepEqual(stored, ["k0 0", "k0 0"])
  await rig.run(second.producer.shutdown())
})

test("what goes out again in doubt and is then refused for good is told as unknown", async () => {
  const rig = newRig(byIds)
  rig.backend.fate = () => ({ outcome: "lose" })
  const first = rig.live()
  await rig.run(first.producer.send(bytes("k0 0"), { key: "k0" }))
  await rig.until(() => rig.backend.appends.length > 0)
  first.process.isDead = true
  await rig.clock.advance(200_000)
  rig.backend.fate = () => ({ outcome: "refuse", error: new PermissionError("writing is not allowed") })
  const failures: PublishFailedError[] = []
  const second = rig.live({ onError: (error) => void failures.push(error) })
  await rig.run(second.producer.flush())
  assert.deepEqual(
    failures.map(({ outcome }) => outcome),
    ["unknown"],
  )
  await rig.run(second.producer.shutdown())
})

test("a backend that has forgotten the producer gets the batch under a new identity, and it is counted", async () => {
  const rig = newRig(sequenced)
  const first = rig.live()
  await rig.run(first.producer.send(bytes("k0 0"), { key: "k0" }))
  await rig.run(first.producer.flush())
  rig.backend.fate = () => down
  await rig.run(first.producer.send(bytes("k0 1"), { key: "k0" }))
  await rig.until(() => rig.backend.appends.length > 1)
  first.process.isDead = true
  rig.backend.forgetProducers()
  rig.backend.fate = () => ({})
  const second = rig.live()
  await rig.run(second.producer.send(bytes("k0 2"), { key: "k0" }))
  await rig.run(second.producer.flush())
  assert.equal(second.producer.spool.depth().possiblyDoubled, 1)
  const stored = [0, 1, 2].flatMap((partition) => rig.backend.texts("t", partition))
  assert.deepEqual(stored, ["k0 0", "k0 1", "k0 1", "k0 2"])
  await rig.run(second.producer.shutdown())
})

test("a batch that was split goes out again in the same parts, with the same ids", async () => {
  for (const manifest of [sequenced, byIds]) {
    const rig = newRig(manifest)
    rig.backend.largestBatch = 3
    rig.backend.fate = (append) => (append >= 3 ? { outcome: "lose" } : {})
    const first = rig.live()
    const sends = Array.from({ length: 10 }, (_, i) => first.producer.send(bytes(`k0 ${i}`), { key: "k0" }))
    await rig.run(Promise.all(sends))
    await rig.until(() => rig.backend.appends.length > 4)
    first.process.isDead = true
    await rig.clock.advance(100)
    rig.backend.fate = () => ({})
    const second = rig.live()
    await rig.run(second.producer.flush())
    await rig.run(second.producer.shutdown())
    const stored = [0, 1, 2].flatMap((partition) => rig.backend.texts("t", partition))
    assert.deepEqual(
      stored,
      Array.from({ length: 10 }, (_, i) => `k0 ${i}`),
    )
  }
})

test("a topic that was replaced since gets what was on its way, and no batch of the old one is waited for", async () => {
  const rig = newRig(sequenced)
  rig.backend.fate = () => down
  const first = rig.live()
  await rig.run(first.producer.send(bytes("k0 0"), { key: "k0" }))
  await rig.until(() => rig.backend.appends.length > 0)
  first.process.isDead = true
  rig.backend.create("t", 3)
  rig.backend.fate = () => ({})
  const second = rig.live()
  await rig.run(second.producer.flush())
  const stored = [0, 1, 2].flatMap((partition) => rig.backend.texts("t", partition))
  assert.deepEqual(stored, ["k0 0"])
  await rig.run(second.producer.shutdown())
})
