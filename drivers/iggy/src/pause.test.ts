import assert from "node:assert/strict"
import { test } from "node:test"
import { VirtualClock } from "@millrace/runtime"
import { Pauses } from "./pause.ts"

async function measured(clock: VirtualClock, pauses: Pauses, mostMs = 60_000): Promise<number> {
  const began = clock.monotonicMs()
  let ended: number | undefined
  const pause = pauses.pause(mostMs).then(() => {
    ended = clock.monotonicMs()
  })
  while (ended === undefined) await clock.advance(1)
  await pause
  return ended - began
}

test("pauses grow to a tenth of a second while nothing comes, and begin short again when something came", async () => {
  const clock = new VirtualClock()
  const pauses = new Pauses(clock)
  const lengths: number[] = []
  for (let index = 0; index < 15; index++) lengths.push(await measured(clock, pauses))
  assert.ok((lengths[0] ?? 99) <= 3, `the first pause took ${lengths[0]} ms`)
  for (const [index, length] of lengths.entries()) {
    assert.ok(length >= (lengths[index - 1] ?? 0) && length <= 101, `pause ${index} took ${length} ms`)
  }
  assert.ok((lengths.at(-1) ?? 0) >= 100)
  pauses.reset()
  assert.ok((await measured(clock, pauses)) <= 3)
  assert.equal(clock.timers, 0)
})

test("a pause is no longer than it may be, and a wake ends it, also one that came before", async () => {
  const clock = new VirtualClock()
  const pauses = new Pauses(clock)
  for (let index = 0; index < 12; index++) await measured(clock, pauses)
  assert.equal(await measured(clock, pauses, 7), 7)
  const pause = pauses.pause(1_000)
  pauses.wake()
  await pause
  assert.equal(clock.timers, 0)
  pauses.wake()
  await pauses.pause(1_000)
})
