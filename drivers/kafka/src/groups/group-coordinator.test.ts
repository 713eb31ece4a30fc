import assert from "node:assert/strict"
import { test } from "node:test"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { FakeCluster } from "../fetch/fake-cluster.test-support.ts"
import { kafkaTopic } from "../names.ts"
import { Pauses } from "../pauses.ts"
import { KafkaGroupCoordinator } from "./group-coordinator.ts"

const topic = { stream: "s", topic: "t" }
const limits = { sessionTimeoutMs: 60_000, rebalanceTimeoutMs: 60_000 }

/** A cluster whose coordinators take requests and answer as the test says, or not at all. */
class SilentCluster extends FakeCluster {
  answers: object[] = []
  override request<S>(): Promise<S> {
    const answer = this.answers.shift()
    return answer === undefined ? new Promise(() => {}) : Promise.resolve(answer as S)
  }
}

function bench(): { clock: VirtualClock; cluster: SilentCluster; groups: KafkaGroupCoordinator } {
  const clock = new VirtualClock()
  const cluster = new SilentCluster(clock)
  cluster.addTopic(kafkaTopic(topic), "AAAAAAAAAAAAAAAAAAAAAQ", [1])
  const tools = { cluster, clock, random: seededRandom(1), pauses: new Pauses(clock) }
  return { clock, cluster, groups: new KafkaGroupCoordinator({ ...tools, protocol: "consumer" }) }
}

test("a close waits for a join and for goodbyes as long as it says, however long the coordinator is silent", async () => {
  const { clock, cluster, groups } = bench()
  const joined = { errorCode: 0, memberEpoch: 1, heartbeatIntervalMs: 1000, assignment: null }
  cluster.answers.push(joined)
  const member = await groups.join("g", [topic], limits)
  await clock.advance(1000)
  const joining = groups.join("h", [topic], limits)
  await clock.advance(0)
  let closed = false
  const closing = groups.close().then(() => {
    closed = true
  })
  await clock.advance(2_400)
  assert.equal(closed, false, "a member that is about to join is to leave again")
  await clock.advance(2_700)
  assert.equal(closed, true)
  await closing
  await assert.rejects(groups.join("g", [topic], limits), { kind: "closed" })
  for (const open of [joining, member.leave()]) open.catch(() => {})
})

test("a coordinator that is not ready is asked again after a pause, and a close of the session ends the pause", async () => {
  const clock = new VirtualClock()
  const pauses = new Pauses(clock)
  const cluster = new SilentCluster(clock)
  cluster.addTopic(kafkaTopic(topic), "AAAAAAAAAAAAAAAAAAAAAQ", [1])
  const groups = new KafkaGroupCoordinator({ cluster, clock, random: seededRandom(1), pauses, protocol: "consumer" })
  const notReady = { errorCode: 14, memberEpoch: 0, heartbeatIntervalMs: 0, assignment: null }
  const closed = { errorCode: 30, memberEpoch: 0, heartbeatIntervalMs: 0, assignment: null, errorMessage: null }
  cluster.answers.push(notReady, closed)
  const joining = assert.rejects(groups.join("g", [topic], limits), { kind: "permission" })
  await clock.advance(0)
  assert.equal(cluster.answers.length, 1, "it waits")
  pauses.close()
  await joining
  assert.equal(clock.timers, 0)
})
