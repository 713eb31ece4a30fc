import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type Claim, ConnectionError, type OffsetEntry } from "@millrace/contract"
import { seededRandom, systemClock, VirtualClock } from "@millrace/runtime"
import { FakeCluster } from "../fetch/fake-cluster.test-support.ts"
import { type ClaimHolder, ClaimToken, type Fence } from "../groups/claim-token.ts"
import { Pauses } from "../pauses.ts"
import { offsetCommitApi, offsetDeleteApi, offsetFetchApi } from "../protocol/api.ts"
import type { OffsetCommitRequest, OffsetFetchRequest } from "../protocol/messages.generated.ts"
import { KafkaOffsetStore } from "./offset-store.ts"

const idA = "AAAAAAAAAAAAAAAAAAAAAQ"
const idB = "AAAAAAAAAAAAAAAAAAAAAg"
const consumer = { kind: "consumer", name: "x" } as const
const group = { kind: "group", name: "g" } as const

function bench(): { readonly cluster: FakeCluster; readonly store: KafkaOffsetStore } {
  const cluster = new FakeCluster(new VirtualClock())
  cluster.addTopic("t", idA, [1, 1])
  return {
    cluster,
    store: new KafkaOffsetStore({
      cluster,
      clock: systemClock,
      random: seededRandom(1),
      pauses: new Pauses(systemClock),
    }),
  }
}

function at(partition: number): { readonly stream: string; readonly topic: string; readonly partition: number } {
  return { stream: "", topic: "t", partition }
}

function entry(partition: number, offset: bigint, claim?: Claim, lineage: string = idA): OffsetEntry {
  return { ...at(partition), offset, lineage, ...(claim === undefined ? {} : { claim }) }
}

/** Answers every partition of a commit with a code. */
function committed(code: (partition: number, request: OffsetCommitRequest) => number) {
  return (request: OffsetCommitRequest) => ({
    throttleTimeMs: 0,
    topics: request.topics.map(({ name = "", topicId = "", partitions }) => ({
      name,
      topicId,
      partitions: partitions.map(({ partitionIndex }) => ({
        partitionIndex,
        errorCode: code(partitionIndex, request),
      })),
    })),
  })
}

class Holder implements ClaimHolder {
  readonly group = "g"
  present: Fence | undefined = { memberId: "m", generation: 4, instanceId: undefined }

  claim(partition: number): Claim {
    return { ...at(partition), token: new ClaimToken(this, partition, idA) }
  }

  fence(): Fence | undefined {
    return this.present
  }
}

describe("offsets in Kafka", () => {
  test("a named consumer is a group of its own name, whose offsets are the next to read, with the id of the topic", async () => {
    const { cluster, store } = bench()
    const requests: OffsetCommitRequest[] = []
    cluster.script(
      offsetCommitApi,
      committed((_, request) => requests.push(request) * 0),
    )
    assert.deepEqual(await store.store(consumer, [entry(1, 7n)]), [undefined])
    const [request] = requests
    assert.equal(request?.groupId, "millrace.consumer.x")
    assert.deepEqual([request?.memberId, request?.generationIdOrMemberEpoch], ["", -1])
    assert.equal(request?.topics[0]?.topicId, idA)
    const [part] = request?.topics[0]?.partitions ?? []
    assert.equal(part?.committedOffset, 7n)
    assert.ok(part?.committedMetadata?.includes(idA))
    await assert.rejects(store.store({ kind: "group", name: "millrace.consumer.x" }, [entry(1, 7n)]), {
      kind: "invalid",
    })
  })

  test("a commit proves itself by the member's id and epoch of now; a void claim is refused without asking", async () => {
    const { cluster, store } = bench()
    const requests: OffsetCommitRequest[] = []
    cluster.script(
      offsetCommitApi,
      committed((_, request) => requests.push(request) * 0),
    )
    const holder = new Holder()
    const claim = holder.claim(0)
    assert.deepEqual(await store.store(group, [entry(0, 1n, claim)]), [undefined])
    assert.deepEqual([requests[0]?.memberId, requests[0]?.generationIdOrMemberEpoch], ["m", 4])
    const wrongGroup = (await store.store({ kind: "group", name: "other" }, [entry(0, 1n, claim)]))[0]
    const wrongPlace = (await store.store(group, [entry(1, 1n, claim)]))[0]
    holder.present = undefined
    const gone = (await store.store(group, [entry(0, 2n, claim)]))[0]
    for (const refused of [wrongGroup, wrongPlace, gone]) {
      assert.deepEqual([refused?.kind, refused?.outcome], ["not-assigned", "rejected"])
    }
    assert.equal(requests.length, 1)
  })

  test("a member that has moved on to another epoch meanwhile commits with that", async () => {
    const { cluster, store } = bench()
    const holder = new Holder()
    const seen: number[] = []
    cluster.script(
      offsetCommitApi,
      committed((_, { generationIdOrMemberEpoch: epoch = 0 }) => {
        seen.push(epoch)
        if (epoch === 5) return 0
        holder.present = { memberId: "m", generation: 5, instanceId: undefined }
        return 113
      }),
    )
    assert.deepEqual(await store.store(group, [entry(0, 1n, holder.claim(0))]), [undefined])
    assert.deepEqual(seen, [4, 5])
  })

  for (const code of [25, 110, 82]) {
    test(`error ${code} of the coordinator means that the partition is another's`, async () => {
      const { cluster, store } = bench()
      cluster.script(
        offsetCommitApi,
        committed(() => code),
      )
      const [refused] = await store.store(group, [entry(0, 1n, new Holder().claim(0))])
      assert.deepEqual([refused?.kind, refused?.outcome, refused?.retryable], ["not-assigned", "rejected", false])
      assert.ok(refused?.message.includes('partition 0 of topic "t"'))
    })
  }

  test("each partition has its own outcome, also when the topics have another history or are gone", async () => {
    const { cluster, store } = bench()
    cluster.script(
      offsetCommitApi,
      committed((partition) => (partition === 1 ? 29 : 0)),
    )
    const outcomes = await store.store(consumer, [
      entry(1, 1n),
      { ...entry(0, 1n), topic: "missing" },
      entry(0, 1n, undefined, idB),
      entry(7, 1n),
      entry(0, 1n),
    ])
    assert.deepEqual(
      outcomes.map((outcome) => outcome?.kind),
      ["permission", "not-found", "history-changed", "not-found", undefined],
    )
  })

  test("a coordinator that moved is found again; one that never comes is told within the request's time", async () => {
    const { cluster, store } = bench()
    let refusals = 3
    cluster.script(
      offsetCommitApi,
      committed(() => (refusals-- > 0 ? 16 : 0)),
    )
    assert.deepEqual(await store.store(consumer, [entry(0, 1n)]), [undefined])
    cluster.script(
      offsetCommitApi,
      committed(() => 14),
    )
    const [refused] = await store.store(consumer, [entry(0, 1n)])
    assert.deepEqual([refused?.retryable, refused?.outcome], [true, "rejected"])
  })

  test("a lost acknowledgement stays unknown", async () => {
    const { cluster, store } = bench()
    const lost = new ConnectionError("cut", { outcome: "unknown" })
    cluster.script(offsetCommitApi, () => Promise.reject(lost))
    const [outcome] = await store.store(consumer, [entry(0, 1n)])
    assert.equal(outcome?.outcome, "unknown")
  })

  test("writes of one group take effect in the order of the calls, also when one waits for its coordinator", async () => {
    const { cluster, store } = bench()
    const stored: bigint[] = []
    let refusals = 2
    cluster.script(
      offsetCommitApi,
      committed((_, request) => {
        if (refusals-- > 0) return 15
        stored.push(request.topics[0]?.partitions[0]?.committedOffset ?? -1n)
        return 0
      }),
    )
    await Promise.all([1n, 2n, 3n].map((offset) => store.store(consumer, [entry(0, offset)])))
    assert.deepEqual(stored, [1n, 2n, 3n])
  })

  for (const version of [1, 5, 7, 8, 9, 10]) {
    test(`offsets are loaded by version ${version}; those of another history of the topic are none`, async () => {
      const { cluster, store } = bench()
      const parts = [
        { partitionIndex: 0, committedOffset: 5n, metadata: `millrace.topic-id=${idB}` },
        { partitionIndex: 1, committedOffset: 6n, metadata: "" },
      ].map((part) => ({ ...part, committedLeaderEpoch: -1, errorCode: 0 }))
      const answer = (request: OffsetFetchRequest) => {
        const asked = version >= 8 ? request.groups?.[0]?.topics?.[0] : request.topics?.[0]
        assert.deepEqual(asked?.partitionIndexes, [0, 1])
        const topics = [{ name: version >= 10 ? "" : "t", topicId: version >= 10 ? idA : "", partitions: parts }]
        const whole = { throttleTimeMs: 0, errorCode: 0, topics: [], groups: [] }
        if (version < 8) return { ...whole, topics }
        return { ...whole, groups: [{ groupId: "millrace.consumer.x", topics, errorCode: 0 }] }
      }
      cluster.script(offsetFetchApi, answer, version)
      const found = await store.load(consumer, [at(0), at(1)])
      assert.deepEqual(found, [undefined, { ...at(1), offset: 6n, lineage: idA }])
    })
  }

  test("a coordinator that does not know the topic's id any more: the topic is looked up again", async () => {
    const { cluster, store } = bench()
    cluster.script(offsetFetchApi, (request) => {
      const topics = request.groups?.[0]?.topics ?? []
      const answered = topics.map(({ topicId = "" }) => {
        const gone = topicId === idA
        if (gone) {
          cluster.topicIds.delete("t")
          cluster.addTopic("t", idB, [1, 1])
        }
        const part = { partitionIndex: 0, committedLeaderEpoch: -1, metadata: null }
        const outcome = gone ? { committedOffset: -1n, errorCode: 100 } : { committedOffset: 3n, errorCode: 0 }
        return { name: "", topicId, partitions: [{ ...part, ...outcome }] }
      })
      const groups = [{ groupId: "g", topics: answered, errorCode: 0 }]
      return { throttleTimeMs: 0, errorCode: 0, topics: [], groups }
    })
    assert.deepEqual(await store.load(group, [at(0)]), [{ ...at(0), offset: 3n, lineage: idB }])
  })

  test("the owner of a partition deletes by writing that there is none; others may only where nobody reads", async () => {
    const { cluster, store } = bench()
    const offsets: bigint[] = []
    cluster.script(
      offsetCommitApi,
      committed((_, request) => offsets.push(request.topics[0]?.partitions[0]?.committedOffset ?? 0n) * 0),
    )
    cluster.script(offsetDeleteApi, ({ topics }) => ({
      errorCode: 0,
      throttleTimeMs: 0,
      topics: topics.map(({ name, partitions }) => ({
        name,
        partitions: partitions.map(({ partitionIndex }) => ({ partitionIndex, errorCode: 86 })),
      })),
    }))
    const outcomes = await store.delete(group, [{ ...at(0), claim: new Holder().claim(0) }, at(1)])
    assert.deepEqual([outcomes[0], outcomes[1]?.kind], [undefined, "not-assigned"])
    assert.deepEqual(offsets, [-1n])
  })

  test("closed, it refuses", async () => {
    const { store } = bench()
    store.close()
    await assert.rejects(store.load(consumer, [at(0)]), { kind: "closed" })
    await assert.rejects(store.store(consumer, [entry(0, 1n)]), { kind: "closed" })
    await assert.rejects(store.delete(consumer, [at(0)]), { kind: "closed" })
  })
})
