import assert from "node:assert/strict"
import { test } from "node:test"
import type { MetadataResponseTopic } from "../protocol/messages.generated.ts"
import { TopicTable } from "./topic-table.ts"

function told(
  topicId: string,
  leaders: readonly (readonly [leader: number, epoch: number])[],
): MetadataResponseTopic & { readonly name: string } {
  const partitions = leaders.map(([leaderId, leaderEpoch], partitionIndex) => ({
    errorCode: 0,
    partitionIndex,
    leaderId,
    leaderEpoch,
    replicaNodes: [],
    isrNodes: [],
    offlineReplicas: [],
  }))
  return { errorCode: 0, name: "t", topicId, isInternal: false, partitions, topicAuthorizedOperations: 0 }
}

test("an older leader epoch is not believed, a newer one is", () => {
  const table = new TopicTable(1_000)
  table.accept(told("a", [[1, 5]]), 0)
  const behind = table.accept(told("a", [[2, 4]]), 1)
  assert.deepEqual(behind.topic.partitions, [{ partition: 0, leader: 1, leaderEpoch: 5 }])
  assert.equal(behind.changed, false)
  const ahead = table.accept(told("a", [[2, 6]]), 2)
  assert.deepEqual(ahead.topic.partitions, [{ partition: 0, leader: 2, leaderEpoch: 6 }])
  assert.equal(ahead.changed, true)
})

test("a topic that was recreated begins with new epochs", () => {
  const table = new TopicTable(1_000)
  table.accept(told("a", [[1, 5]]), 0)
  const { topic, changed } = table.accept(told("b", [[2, 0]]), 1)
  assert.equal(topic.partitions[0]?.leader, 2)
  assert.ok(changed)
})

test("brokers that tell no epochs are believed", () => {
  const table = new TopicTable(1_000)
  table.accept(told("a", [[1, -1]]), 0)
  assert.equal(table.accept(told("a", [[2, -1]]), 1).topic.partitions[0]?.leader, 2)
})

test("more partitions are news", () => {
  const table = new TopicTable(1_000)
  table.accept(told("a", [[1, 5]]), 0)
  assert.equal(
    table.accept(
      told("a", [
        [1, 5],
        [1, 5],
      ]),
      1,
    ).changed,
    true,
  )
})

test("age, doubt and oblivion", () => {
  const table = new TopicTable(1_000)
  table.accept(told("a", [[1, 5]]), 0)
  assert.ok(table.fresh("t", 1_000))
  assert.equal(table.fresh("t", 1_001), undefined)
  assert.equal(table.fresh("t", 10, 5), undefined)
  assert.ok(table.usable("t"), "old, and nobody has doubted it")
  table.invalidate("t")
  assert.equal(table.usable("t"), undefined)
  assert.ok(table.isStale("t"))
  table.accept(told("a", [[1, 5]]), 2)
  assert.ok(table.fresh("t", 2))
  table.forget("t")
  assert.equal(table.usable("t"), undefined)
  assert.deepEqual(table.names(), [])
})
