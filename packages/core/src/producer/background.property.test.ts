/**
 * What a background producer promises, whatever happens in whichever order: sends of every kind, faults, topics that are deleted,
 * recreated and grown, an `onError` that throws, waits, sends or shuts down, and a shutdown at any time. Every record that was accepted
 * is stored or told, and told once; nothing that was refused is either; each partition has records in the order of the calls; at the
 * end the buffer is empty, nothing hangs and no timer is left.
 */
import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import {
  bufferBytes,
  fates,
  indexOf,
  overheadBytes,
  perform,
  Run,
  type Sent,
  type Shape,
  shapes,
  steps,
} from "./background-run.test-support.ts"
import { PublishFailedError } from "./publish-failed.ts"

/** Each partition, and each of a topic that is gone. */
function check(run: Run, shape: Shape): void {
  assert.deepEqual(run.faults, [])
  const stored = new Set<number>()
  for (const incarnation of run.incarnations) {
    const here = new Set<number>()
    for (const records of incarnation) {
      const last = new Map<string, number>()
      for (const { payload } of records) {
        const index = indexOf(payload)
        stored.add(index)
        assert.ok(!shape.dedup || !here.has(index), `r${index} is stored twice`)
        here.add(index)
        const { to: where } = run.sent[index] as Sent
        // Records in balance have an order too, where there is but one partition.
        const row = run.incarnations.every(({ length }) => length === 1) ? "all" : String(where)
        if (where === undefined && row !== "all") continue
        const before = last.get(row) ?? -1
        assert.ok(before < index, `r${index} stands behind r${before}`)
        last.set(row, index)
      }
    }
  }
  for (const sent of run.sent) {
    const { index, accepted, delivery, told, threw, atShutdown } = sent
    const name = `r${index} (${sent.way})`
    assert.notEqual(accepted, undefined, `${name}: its sender waits for ever`)
    assert.notEqual(delivery, "pending", `${name}: its delivery never settles`)
    const isStored = stored.has(index)
    if (accepted === false) {
      assert.ok(!isStored && told + atShutdown === 0, `${name} was refused, but stored or told`)
      continue
    }
    if (delivery === "confirmed") assert.ok(isStored, `${name} is confirmed and not stored`)
    if (sent.place !== undefined && run.incarnations.length === 1) {
      const { incarnation, partition, offset } = sent.place
      assert.equal(indexOf(incarnation[partition]?.[Number(offset)]?.payload ?? null), index)
    }
    if (shape.onError === "hangs") assert.ok(told + atShutdown <= 1, `${name} was told twice`)
    else assert.ok(told - threw + atShutdown <= 1, `${name} was told twice`)
    if (run.isCalm && threw > 0) assert.equal(atShutdown, 1, `${name} was taken by nobody`)
    if (sent.way !== "watch") {
      if (delivery !== undefined) assert.equal(told + atShutdown, 0, `${name} was told elsewhere too`)
    }
    if (delivery === undefined || sent.way === "watch") {
      assert.ok(isStored || told > 0 || atShutdown > 0 || delivery === "failed", `${name} is lost`)
    }
  }
}

function countAtShutdown(run: Run): void {
  if (!(run.shutdownError instanceof PublishFailedError)) return
  for (const { payload } of run.shutdownError.unconfirmed) (run.sent[indexOf(payload)] as Sent).atShutdown++
}

async function until(run: Run, condition: () => boolean, what: string): Promise<void> {
  for (let waited = 0; !condition(); waited++) {
    assert.ok(waited < 400, what)
    await run.clock.advance(5000)
  }
}

/** Flushes until nothing more is sent from inside of `onError`. */
async function settleAll(run: Run): Promise<void> {
  for (let before = -1; before < run.sent.length; ) {
    before = run.sent.length
    run.flush()
    await until(run, () => run.flushes.every(({ settled }) => settled), "a flush never settles")
    await run.clock.advance(100)
  }
}

/** An empty buffer has room for a send that fills it, at once. */
async function checkBuffer(run: Run): Promise<void> {
  const sent = run.send("send", undefined, bufferBytes - overheadBytes - `${run.sent.length};`.length)
  await run.clock.advance(0)
  assert.notEqual(sent.accepted, undefined, "the buffer is not empty")
  if (sent.refusal !== undefined) assert.doesNotMatch(sent.refusal.message, /has no room/)
}

test("whatever happens, every accepted record is stored or told once, in order, and nothing is left", async () => {
  await fc.assert(
    fc.asyncProperty(
      shapes,
      fc.array(fates, { maxLength: 15 }),
      fc.array(steps, { minLength: 3, maxLength: 40 }),
      async (shape, outcomes, todo) => {
        const run = new Run(shape, outcomes)
        if (shape.init) await run.producer.init()
        for (const step of todo) await perform(run, step, shape.shutdownMs)
        run.isDown = false
        if (run.shutdowns === 0 && shape.onError !== "hangs" && shape.onError !== "shutsDown") {
          await settleAll(run)
          run.isCalm = true
          await checkBuffer(run)
        }
        run.shutdown(20_000)
        await until(run, () => run.ended === run.shutdowns, "a shutdown never settles")
        await run.clock.advance(30_000)
        countAtShutdown(run)
        check(run, shape)
        assert.equal(run.clock.timers, 0)
      },
    ),
    { numRuns: 400 },
  )
})
