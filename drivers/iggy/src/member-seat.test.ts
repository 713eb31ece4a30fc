import assert from "node:assert/strict"
import { test } from "node:test"
import { joinConsumerGroup, leaveConsumerGroup } from "./codec/group-commands.ts"
import { refusal } from "./connection/scripted-server.test-support.ts"
import { MemberSeat } from "./member-seat.ts"
import { code, type Requests } from "./requests.ts"
import { Bench, connectTo, nameOf } from "./session.test-support.ts"
import type { IggySession } from "./session.ts"

const patienceMs = 1_000

function requestsOf(session: unknown): Requests {
  const { native } = session as IggySession
  return {
    version: native.version,
    request: (command, query) => native.request(command, query, { timeoutMs: 5_000 }),
    assertOpen: () => {},
  }
}

test("a newcomer that never comes in is taken for dead, and what was released for it comes back; the next one is heard", async () => {
  await using bench = await Bench.open()
  const topic = await bench.topic("t", { partitions: 2 })
  await bench.session.groups.create("g", topic)
  const seat = new MemberSeat(requestsOf(bench.session), nameOf(topic), "g")
  assert.equal((await seat.join([], { nowMs: 0, patienceMs })).kind, "member")
  const ghost = await connectTo(bench.iggy)
  const waiting = new MemberSeat(requestsOf(ghost), nameOf(topic), "g")
  assert.equal((await waiting.join([], { nowMs: 0, patienceMs })).kind, "waiting")
  const ask = async (nowMs: number): Promise<{ mine: readonly number[]; pending: readonly number[] }> => {
    const sync = await seat.ask([0], { nowMs, patienceMs })
    return sync.kind === "member" ? { mine: sync.partitions, pending: sync.pending } : assert.fail(sync.kind)
  }
  assert.deepEqual(await ask(10), { mine: [0], pending: [1] })
  assert.deepEqual(await ask(3_010), { mine: [0], pending: [1] })
  assert.deepEqual(await ask(3_011), { mine: [0, 1], pending: [] })
  const other = await connectTo(bench.iggy)
  const next = new MemberSeat(requestsOf(other), nameOf(topic), "g")
  assert.equal((await next.join([], { nowMs: 4_000, patienceMs })).kind, "waiting")
  assert.deepEqual(await ask(4_000), { mine: [0], pending: [1] })
  const entered = await next.join([], { nowMs: 4_100, patienceMs })
  assert.deepEqual(entered.kind === "member" ? entered.partitions : entered.kind, [1])
  await Promise.all([ghost.close(), other.close()])
})

test("a newcomer whose patience is over comes in without asking", async () => {
  await using bench = await Bench.open()
  const topic = await bench.topic("t", { partitions: 2 })
  await bench.session.groups.create("g", topic)
  await requestsOf(bench.session).request(joinConsumerGroup, { ...nameOf(topic), group: "g" })
  const other = await connectTo(bench.iggy)
  const seat = new MemberSeat(requestsOf(other), nameOf(topic), "g")
  assert.equal((await seat.join([], { nowMs: 0, patienceMs })).kind, "waiting")
  assert.equal((await seat.join([], { nowMs: 999, patienceMs })).kind, "waiting")
  assert.equal((await seat.join([], { nowMs: 1_000, patienceMs })).kind, "member")
  assert.equal(bench.iggy.topic("s", "t").groups.get("millrace.joining/g")?.members.size, 0)
  await other.close()
})

test("in its next session it leaves the groups that an old one may have left it in", async () => {
  await using bench = await Bench.open()
  const topic = await bench.topic("t", { partitions: 2 })
  await bench.session.groups.create("g", topic)
  const requests = requestsOf(bench.session)
  await bench.session.groups.create("millrace.joining/g", topic)
  for (const group of ["g", "millrace.joining/g"]) {
    await requests.request(joinConsumerGroup, { ...nameOf(topic), group })
  }
  const seat = new MemberSeat(requests, nameOf(topic), "g")
  seat.reset()
  assert.equal((await seat.join([], { nowMs: 0, patienceMs })).kind, "member")
  assert.equal(bench.iggy.topic("s", "t").groups.get("millrace.joining/g")?.members.size, 0)
})

test("a group whose name leaves no room for the manners is joined at once", async () => {
  await using bench = await Bench.open()
  const topic = await bench.topic()
  const group = "g".repeat(255)
  await bench.session.groups.create(group, topic)
  await requestsOf(bench.session).request(joinConsumerGroup, { ...nameOf(topic), group })
  const other = await connectTo(bench.iggy)
  const seat = new MemberSeat(requestsOf(other), nameOf(topic), group)
  assert.equal((await seat.join([], { nowMs: 0, patienceMs })).kind, "member")
  await other.close()
})

test("what the server did not take is said again: a member is not taken for ready, nor for gone, by its own word alone", async () => {
  await using bench = await Bench.open()
  const topic = await bench.topic("t", { partitions: 2 })
  await bench.session.groups.create("g", topic)
  const seat = new MemberSeat(requestsOf(bench.session), nameOf(topic), "g")
  await seat.join([], { nowMs: 0, patienceMs })
  const other = await connectTo(bench.iggy)
  const newcomer = new MemberSeat(requestsOf(other), nameOf(topic), "g")
  await newcomer.join([], { nowMs: 0, patienceMs })
  const sizeOf = (group: string): number | undefined => bench.iggy.topic("s", "t").groups.get(group)?.members.size
  let refusals = 1
  const refuseOnce = (operation: number): void => {
    refusals = 1
    bench.iggy.intercept = (request, visitor) => {
      if (request.operation !== operation || refusals-- < 1) return false
      visitor.send(refusal(request, code.transientNotAccepted))
      return true
    }
  }
  refuseOnce(joinConsumerGroup.operation)
  await assert.rejects(seat.ask([0], { nowMs: 10, patienceMs }), { kind: "not-leader" })
  await seat.ask([0], { nowMs: 20, patienceMs })
  assert.equal(sizeOf("millrace.ready/g"), 1)
  refuseOnce(leaveConsumerGroup.operation)
  await assert.rejects(newcomer.join([], { nowMs: 30, patienceMs }), { kind: "not-leader" })
  assert.equal(sizeOf("millrace.joining/g"), 1)
  assert.equal((await newcomer.join([], { nowMs: 40, patienceMs })).kind, "member")
  assert.equal(sizeOf("millrace.joining/g"), 0)
  await other.close()
})
