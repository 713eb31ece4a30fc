/** What recorded exchanges say, by what is known of how they came about: the layouts could pass their bytes through and still misname them. */
import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { ByteReader } from "../wire/byte-reader.ts"
import { headerBytes } from "../wire/header.ts"
import { readReply } from "../wire/reply.ts"
import { readRequestHeader } from "../wire/server-side.test-support.ts"
import { createStream, createTopic, getTopic } from "./catalog-commands.ts"
import { withoutLimit } from "./catalog-structures.ts"
import type { Command } from "./command.ts"
import { exchange } from "./exchanges.test-support.ts"
import { getConsumerGroup, getConsumerOffset, storeConsumerOffset, syncConsumerGroup } from "./group-commands.ts"
import { pollMessages, sendMessages } from "./message-commands.ts"
import { optionValue } from "./options.ts"
import { describeOptions, getClusterMetadata, getMe, getStats, loginRegister } from "./server-commands.ts"
import { createUser, getUser } from "./user-commands.ts"

function asked<Q>(command: Command<Q, unknown>, name: string): Q {
  const { request } = exchange(command.name, name)
  return command.request.read(new ByteReader(request.subarray(headerBytes), name), "0.11")
}

function answered<S>(command: Command<unknown, S>, name: string): S {
  const { response } = exchange(command.name, name)
  return command.reply.read(new ByteReader(readReply(response).payload, name), "0.11")
}

describe("recorded values", () => {
  it("of streams and topics", () => {
    assert.equal(answered(createStream, "ok").name, asked(createStream, "ok").name)
    const topic = answered(createTopic, "three_partitions_defaults")
    assert.deepEqual(
      [topic.name, topic.partitionsCount, topic.messageExpiryMicros, topic.maxSizeBytes],
      ["events", 3, withoutLimit, withoutLimit],
    )
    assert.deepEqual([topic.compression, topic.sizeBytes, topic.messagesCount], ["none", 0n, 0n])
    assert.equal(optionValue(topic.derivedOptions, "segment_size"), 1n << 30n)
    assert.equal(optionValue(topic.derivedOptions, "enforce_fsync"), false)
    assert.deepEqual(
      topic.partitions.map((partition) => partition.id),
      [0, 1, 2],
    )
    const later = answered(getTopic, "ok")
    assert.ok(
      later?.partitions.every(
        (partition) => partition.createdMicros === later.createdMicros || partition.createdMicros > 0n,
      ),
    )
    assert.equal(
      later?.messagesCount,
      later?.partitions.reduce((sum, partition) => sum + partition.messagesCount, 0n),
    )
    assert.equal(answered(getTopic, "missing_empty_body"), undefined)
  })

  it("of messages", () => {
    const sent = asked(sendMessages, "partition_id_three_messages")
    assert.deepEqual(
      [sent.stream, sent.topic, sent.partitioning, sent.messagesCount],
      ["orders", "events", { kind: "partition", partition: 0 }, 3],
    )
    assert.deepEqual(answered(sendMessages, "partition_id_three_messages"), [
      { streamId: 0, topicId: 0, partitionId: 0, baseOffset: 0n },
    ])
    assert.equal(answered(sendMessages, "partition_id_second_batch")[0]?.baseOffset, 3n)
    const sliced = asked(pollMessages, "offset_1_count_2_sliced_batch")
    assert.deepEqual([sliced.strategy, sliced.count, sliced.autoCommit], [{ kind: "offset", value: 1n }, 2, false])
    assert.equal(asked(pollMessages, "next_auto_commit").autoCommit, true)
    assert.equal(asked(pollMessages, "no_partition_means_0").partition, undefined)
    const sentinel = answered(pollMessages, "group_not_member_resync_sentinel")
    assert.deepEqual([sentinel.partition, sentinel.messagesCount, sentinel.records.length], [0xffff_ffff, 0, 0])
  })

  it("of groups and offsets", () => {
    assert.deepEqual(answered(syncConsumerGroup, "sole_member_all_partitions"), {
      generation: 1n,
      partitions: [0, 1, 2],
    })
    assert.equal(answered(syncConsumerGroup, "not_a_member_empty_body"), undefined)
    const group = answered(getConsumerGroup, "two_members")
    assert.deepEqual([group?.membersCount, group?.partitionsCount], [2, 3])
    assert.deepEqual(group?.members.flatMap((member) => member.partitions).toSorted(), [0, 1, 2])
    const stored = asked(storeConsumerOffset, "quorum")
    assert.deepEqual([stored.quorum, asked(storeConsumerOffset, "no_ack").quorum], [true, false])
    const found = answered(getConsumerOffset, "ok")
    assert.ok(found !== undefined && found.storedOffset <= found.currentOffset)
    assert.equal(found.partition, stored.partition)
  })

  it("of the server and its users", () => {
    const login = asked(loginRegister, "ok")
    assert.deepEqual([login.protocolVersion, login.username], [11264, "iggy"])
    const granted = answered(loginRegister, "ok")
    assert.deepEqual([granted.userId, granted.protocolVersion, granted.serverVersion], [0, 11264, "0.9.0-edge.5"])
    assert.ok(granted.session > 0n)
    const [node] = answered(getClusterMetadata, "single_node").nodes
    assert.deepEqual([node?.name, node?.role, node?.status], ["iggy-node", "leader", "healthy"])
    assert.deepEqual([answered(getMe, "ok").userId, answered(getMe, "ok").transport], [0, "tcp"])
    assert.equal(answered(getMe, "member_of_one_group").groups.length, 1)
    assert.equal(answered(describeOptions, "topic_scope").length, 8)
    const stats = answered(getStats, "ok")
    assert.match(stats.serverVersion, /^0\.9\.0/)
    assert.ok(
      stats.totalMemoryBytes >= stats.availableMemoryBytes &&
        stats.totalDiskBytes >= stats.freeDiskBytes &&
        stats.threads > 0,
    )
    assert.equal(answered(getUser, "root")?.username, "iggy")
    const made = asked(createUser, "with_permissions")
    assert.deepEqual(answered(createUser, "with_permissions").permissions, made.permissions)
    assert.ok((made.permissions?.streams.length ?? 0) > 0)
  })

  it("of the main session's client id", () => {
    const { request } = exchange("ping", "ping_after_login")
    assert.equal(readRequestHeader(request).client, 0x1111_2222_3333_4444_5555_6666_7777_8888n)
  })
})
