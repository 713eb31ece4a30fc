/** What a consumer stores by itself and what transactions store of the same partition: progress never goes back. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { openGroupLog } from "../group/group-consumer.ts"
import { bytes, run } from "../producer/sending-rig.test-support.ts"
import { ProcessingRig } from "./processing-rig.test-support.ts"
import { TransactionalProducer } from "./transactional-producer.ts"

/** From now on stores have no effect, and no answer, until the answer of this is called. */
function heldStores(rig: ProcessingRig): () => void {
  const { promise, resolve } = Promise.withResolvers<void>()
  rig.input.offsets.gate = promise
  return resolve
}

test("a store of progress over markers that is slow does not undo what a transaction has stored meanwhile", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 2)
  const processor = rig.process((text) => text)
  rig.assign(0)
  await run(rig.clock, processor.ready)
  await rig.clock.advance(1000)
  assert.equal(rig.input.groupNext("g"), 2n)
  const letGo = heldStores(rig)
  rig.input.log.putMarkers(rig.input.place(), 5)
  await rig.clock.advance(3000)
  rig.input.put(7, 8)
  await rig.clock.advance(200)
  letGo()
  await rig.clock.advance(3000)
  assert.deepEqual(rig.made, ["0", "1", "7"])
  assert.equal(rig.input.groupNext("g"), 8n)
  assert.deepEqual(rig.aborts, [])
  await run(rig.clock, processor.shutdown())
  assert.equal(rig.input.groupNext("g"), 8n)
  assert.equal(rig.clock.timers, 0, "no timer is left")
})

test("nothing is stored by itself of what is on its way in a transaction", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 2)
  const processor = rig.process((text) => text)
  rig.assign(0)
  await run(rig.clock, processor.ready)
  await rig.clock.advance(1000)
  rig.input.log.putMarkers(rig.input.place(), 5)
  rig.fates({ commit: [{ delayMs: 2500 }] })
  rig.input.put(7, 8)
  await rig.clock.advance(2000)
  assert.deepEqual(rig.input.offsets.history, [], "the transaction has it")
  await rig.clock.advance(3000)
  assert.equal(rig.input.groupNext("g"), 8n)
  await run(rig.clock, processor.shutdown())
})

test("a mark that is slow to be stored does not undo what a transaction has stored meanwhile", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 5)
  const producer = new TransactionalProducer(rig.context, { transactionalId: "tx" })
  await run(rig.clock, producer.init())
  const source = { topic: rig.input.topic, group: "g", what: 'consumer of group "g"' }
  const options = { startAt: { kind: "first" }, commitPolicy: { kind: "disabled" } } as const
  const opening = openGroupLog(rig.context, source, options as never)
  rig.assign(0)
  const consumer = await run(rig.clock, opening)
  const [first, second] = [
    await run(rig.clock, consumer.nextWithin(1000)),
    await run(rig.clock, consumer.nextWithin(1000)),
  ]
  const letGo = heldStores(rig)
  consumer.mark(first)
  const open = await run(rig.clock, producer.begin())
  await open.send(rig.out, bytes("of the second"))
  const stored = open.sendOffsets(consumer, [second]).then(() => open.commit())
  await rig.clock.advance(200)
  letGo()
  await run(rig.clock, stored)
  await rig.clock.advance(200)
  assert.equal(rig.input.groupNext("g"), 2n)
  await run(rig.clock, consumer.shutdown())
})
