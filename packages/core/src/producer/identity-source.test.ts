import assert from "node:assert/strict"
import { test } from "node:test"
import { ConnectionError, FencedError, type Identity, type PartitionLog } from "@millrace/contract"
import { VirtualClock } from "@millrace/runtime"
import { IdentitySource, type IdentityUser } from "./identity-source.ts"

const topic = { stream: "s", topic: "t" }

class User implements IdentityUser {
  numbered = 0
  woken = 0
  wake(): void {
    this.woken++
  }
}

function source(answers: (bump: Identity | undefined) => Identity | Error): {
  source: IdentitySource
  asked: (Identity | undefined)[]
  clock: VirtualClock
} {
  const clock = new VirtualClock()
  const asked: (Identity | undefined)[] = []
  const log = {
    identify: async (_: unknown, bump?: Identity) => {
      asked.push(bump)
      const answer = answers(bump)
      if (answer instanceof Error) throw answer
      return answer
    },
  } as unknown as PartitionLog
  const settings = { timeoutMs: 1000, retries: 1, retryBackoffMs: 10 }
  const signal = new AbortController().signal
  return { source: new IdentitySource(log, { clock, settings, signal }), asked, clock }
}

const counting = (bump: Identity | undefined): Identity => ({
  producerId: 1n,
  epoch: bump === undefined ? 0 : bump.epoch + 1,
})

test("partitions that ask at once share one identity and one request", async () => {
  const { source: identities, asked } = source(counting)
  const [first, second] = await Promise.all([identities.acquire(topic), identities.acquire(topic)])
  assert.equal(first, second)
  assert.equal(await identities.acquire(topic), first)
  assert.equal(asked.length, 1)
})

test("the epoch is raised only when no partition has anything numbered on its way, and all are woken", async () => {
  const { source: identities, asked, clock } = source(counting)
  const first = await identities.acquire(topic)
  const [busy, idle] = [new User(), new User()]
  identities.register(busy)
  identities.register(idle)
  busy.numbered = 2
  const renewed = identities.renew(topic, first, { fenced: false })
  await clock.advance(100)
  assert.equal(asked.length, 1)
  assert.equal(identities.isRenewing, true)
  busy.numbered = 1
  identities.noticeSettled()
  await clock.advance(0)
  assert.equal(asked.length, 1)
  busy.numbered = 0
  identities.noticeSettled()
  assert.deepEqual(await renewed, { producerId: 1n, epoch: 1 })
  assert.equal(identities.isRenewing, false)
  assert.deepEqual(asked, [undefined, first])
  await clock.advance(0)
  assert.ok(busy.woken > 0 && idle.woken > 0)
})

test("a partition that ends does not hold a renewal up", async () => {
  const { source: identities } = source(counting)
  const first = await identities.acquire(topic)
  const user = new User()
  user.numbered = 1
  const unregister = identities.register(user)
  const renewed = identities.renew(topic, first, { fenced: false })
  unregister()
  assert.equal((await renewed).epoch, 1)
})

test("who asks for a successor of an old identity gets the present one", async () => {
  const { source: identities, asked } = source(counting)
  const first = await identities.acquire(topic)
  const second = await identities.renew(topic, first, { fenced: false })
  assert.equal(await identities.renew(topic, first, { fenced: false }), second)
  assert.equal(asked.length, 2)
})

test("an identity that was fenced, or cannot be raised, is followed by a fresh one", async () => {
  let next = 1n
  const { source: identities, asked } = source((bump) =>
    bump === undefined ? { producerId: next++, epoch: 0 } : new FencedError("epoch 0 is old"),
  )
  const first = await identities.acquire(topic)
  const second = await identities.renew(topic, first, { fenced: true })
  assert.equal(second.producerId, 2n)
  const third = await identities.renew(topic, second, { fenced: false })
  assert.equal(third.producerId, 3n)
  assert.deepEqual(asked, [undefined, undefined, second, undefined])
})

test("a spent identity is never given out again", async () => {
  const { source: identities } = source(counting)
  await identities.acquire(topic)
  identities.spend()
  assert.equal(identities.current, undefined)
  assert.equal((await identities.acquire(topic)).epoch, 1)
})

test("a renewal that fails leaves the way free for the next try", async () => {
  let down = true
  const { source: identities, clock } = source((bump) =>
    bump !== undefined && down ? new ConnectionError("down") : counting(bump),
  )
  const first = await identities.acquire(topic)
  const failed = identities.renew(topic, first, { fenced: false }).catch((error: unknown) => error)
  await clock.advance(100)
  assert.ok((await failed) instanceof ConnectionError)
  assert.equal(identities.isRenewing, false)
  down = false
  assert.equal((await identities.renew(topic, first, { fenced: false })).epoch, 1)
})
