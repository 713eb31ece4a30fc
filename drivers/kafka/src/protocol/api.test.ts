import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError, MillraceError, UnsupportedError } from "@millrace/contract"
import fc from "fast-check"
import {
  apiVersionsApi,
  codecOf,
  consumerGroupHeartbeatApi,
  fetchApi,
  findCoordinatorApi,
  metadataApi,
  offsetCommitApi,
  produceApi,
} from "./api.ts"
import { answerFrame, everyApi } from "./every-api.test-support.ts"
import type { ConsumerGroupHeartbeatResponse } from "./messages.generated.ts"
import { randomMessage } from "./random-message.test-support.ts"
import { Writer } from "./writer.ts"

const header = { correlationId: 5, clientId: "me" }

test("a request begins with its length and the header of its version", () => {
  // Protocol guide: int16 key, int16 version, int32 correlation id, nullable string client id; tagged fields from the first flexible version on.
  const old = Buffer.concat(apiVersionsApi.encode({ clientSoftwareName: "", clientSoftwareVersion: "" }, 0, header))
  assert.equal(old.toString("hex"), "0000000c" + "0012" + "0000" + "00000005" + "00026d65")
  const named = { clientSoftwareName: "millrace", clientSoftwareVersion: "1" }
  const flexible = Buffer.concat(apiVersionsApi.encode(named, 3, header))
  assert.equal(
    flexible.toString("hex"),
    "00000019" + "0012" + "0003" + "00000005" + "00026d65" + "00" + "096d696c6c72616365" + "0231" + "00",
  )
})

test("the answer to ApiVersions has the oldest header in every version", () => {
  // What a broker says to a version that it does not know: error 35 in the form of version 0, with what it knows (KIP-511).
  const answer = Buffer.from("00000005" + "0023" + "00000001" + "001200000004", "hex")
  const { errorCode, apiKeys } = apiVersionsApi.decode(answer, 0)
  assert.equal(errorCode, 35)
  assert.deepEqual(
    apiKeys.map(({ apiKey, minVersion, maxVersion }) => [apiKey, minVersion, maxVersion]),
    [[18, 0, 4]],
  )
  const newer = Buffer.from("00000005" + "0000" + "02" + "00120000000400" + "00000000" + "00", "hex")
  assert.equal(apiVersionsApi.decode(newer, 4).apiKeys[0]?.maxVersion, 4)
})

test("record batches go into a request without a copy", () => {
  const [small, large, larger] = [
    new Uint8Array(10).fill(1),
    new Uint8Array(5_000).fill(2),
    new Uint8Array(90_000).fill(3),
  ]
  const partitionData = [small, large, larger].map((records, index) => ({ index, records }))
  for (let version = produceApi.min; version <= produceApi.max; version++) {
    const topicData = [{ name: "t", topicId: "AAAAAAAAAAAAAAAAAAAAAQ", partitionData }]
    const chunks = produceApi.encode({ acks: -1, timeoutMs: 1_000, topicData }, version, header)
    assert.ok(chunks.includes(large) && chunks.includes(larger))
    const frame = Buffer.concat(chunks)
    assert.equal(frame.readInt32BE(0), frame.length - 4)
    assert.ok(frame.includes(Buffer.concat([large])) && frame.includes(Buffer.concat([larger])))
  }
})

test("fetched records are views of the frame", () => {
  const writer = new Writer()
  writer.int32(5)
  writer.unsignedVarint(0)
  const records = new Uint8Array(20_000).fill(7)
  const partitions = [{ partitionIndex: 3, errorCode: 0, highWatermark: 9n, abortedTransactions: null, records }]
  const body = { responses: [{ topicId: "AAAAAAAAAAAAAAAAAAAAAQ", partitions }], sessionId: 4 }
  codecOf(fetchApi.response, 17).write(writer, body)
  const frame = Buffer.concat(writer.chunks())
  const read = fetchApi.decode(frame, 17).responses[0]?.partitions[0]
  assert.equal(read?.highWatermark, 9n)
  assert.equal(read?.records?.buffer, frame.buffer)
  assert.equal(Buffer.compare(read?.records ?? new Uint8Array(0), records), 0)
})

test("what a version lacks is dropped where Kafka ignores it, and refused otherwise", () => {
  const topics = [
    {
      name: "t",
      topicId: "AAAAAAAAAAAAAAAAAAAAAQ",
      partitions: [{ partitionIndex: 1, committedOffset: 4n, committedMetadata: null }],
    },
  ]
  const commit = { groupId: "g", memberId: "", topics }
  for (let version = offsetCommitApi.min; version <= offsetCommitApi.max; version++) {
    const frame = Buffer.concat(offsetCommitApi.encode(commit, version, header)).toString("latin1")
    assert.equal(frame.includes("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01"), version >= 10, `version ${version}`)
  }
  assert.throws(
    () => findCoordinatorApi.encode({ key: "x", keyType: 1 }, 0, header),
    (error) =>
      error instanceof UnsupportedError && /FindCoordinatorRequest version 0 has no field keyType/.test(error.message),
  )
  findCoordinatorApi.encode({ key: "x", keyType: 0 }, 0, header)
  assert.throws(() => metadataApi.encode({ topics: null }, 0, header), UnsupportedError)
})

test("tagged fields that nobody knows are skipped", () => {
  // ConsumerGroupHeartbeat, version 0: throttle, error, message null, member "m", epoch 1, interval 5000, assignment null, tags.
  const plain = ["00000005", "00", "00000000", "0000", "00", "026d", "00000001", "00001388", "ff"].join("")
  const read = (tags: string): ConsumerGroupHeartbeatResponse =>
    consumerGroupHeartbeatApi.decode(Buffer.from(`${plain}${tags}`, "hex"), 0)
  const known = read("00")
  assert.deepEqual(
    [known.memberId, known.memberEpoch, known.heartbeatIntervalMs, known.assignment],
    ["m", 1, 5_000, null],
  )
  assert.deepEqual(read("020502abcd8f0700"), known)
  assert.throws(() => read("020502abcd0502abcd"), isProtocol)
})

test("values that no version can carry are refused", () => {
  const named = (name: string): unknown =>
    metadataApi.encode({ topics: [{ name, topicId: "AAAAAAAAAAAAAAAAAAAAAA" }] }, 9, header)
  assert.throws(() => named("x".repeat(40_000)), InvalidError)
  assert.throws(
    () => metadataApi.encode({ topics: [{ name: "t", topicId: "no uuid" }] }, 12, header),
    (error) => error instanceof InvalidError && /"no uuid"/.test(error.message),
  )
  assert.throws(() => metadataApi.encode({ topics: [] }, 99, header), InvalidError)
  for (const timeoutMs of [0x8000_0000, -0x8000_0001, 2 ** 53]) {
    assert.throws(
      () => produceApi.encode({ acks: -1, timeoutMs, topicData: [] }, 12, header),
      InvalidError,
      `${timeoutMs}`,
    )
  }
  assert.throws(() => findCoordinatorApi.encode({ keyType: 128, coordinatorKeys: [] }, 6, header), InvalidError)
})

test("a truncated answer is an error at every byte, and so is one that goes on", () => {
  for (const api of everyApi()) {
    for (const version of new Set([api.min, api.max])) {
      const frame = answerOf(api, version, 3)
      const step = Math.max(1, Math.floor(frame.length / 400))
      for (let length = 0; length < frame.length; length += step) {
        assert.throws(
          () => api.decode(frame.subarray(0, length), version),
          isProtocol,
          `${api.name} ${version}: ${length}`,
        )
      }
      assert.throws(() => api.decode(Buffer.concat([frame, Uint8Array.of(0)]), version), isProtocol, api.name)
    }
  }
})

test("altered and random answers are refused or read, and nothing else", () => {
  for (const api of everyApi()) {
    const frame = answerOf(api, api.max, 9)
    const decodes = (bytes: Uint8Array): void => {
      try {
        api.decode(bytes, api.max)
      } catch (error) {
        assert.ok(isProtocol(error), `${api.name}: ${String(error)}`)
      }
    }
    fc.assert(
      fc.property(fc.nat(frame.length - 1), fc.constantFrom(0, 1, 0x7f, 0x80, 0xff), (at, value) => {
        const altered = Uint8Array.from(frame)
        altered[at] = value
        decodes(altered)
      }),
      { numRuns: 60 },
    )
    fc.assert(fc.property(fc.uint8Array({ maxLength: 80 }), decodes), { numRuns: 60 })
  }
})

test("a count or a length that the frame cannot hold makes nothing", () => {
  // Metadata, version 12: a count of brokers near 2^32, then nothing.
  const before = process.memoryUsage().heapUsed
  const counted = Buffer.from("00000005" + "00" + "00000000" + "ffffffff0f", "hex")
  for (let i = 0; i < 1_000; i++) assert.throws(() => metadataApi.decode(counted, 12), isProtocol)
  const negative = Buffer.from("00000005" + "00000000" + "fffffff0", "hex")
  assert.throws(() => metadataApi.decode(negative, 8), isProtocol)
  assert.ok(process.memoryUsage().heapUsed - before < 64 << 20)
})

test("messages longer than the first buffer keep every part in its place", () => {
  const partitions = Array.from({ length: 3_000 }, (_, i) => ({
    partition: i,
    currentLeaderEpoch: i,
    fetchOffset: BigInt(i),
    partitionMaxBytes: 1,
  }))
  const body = {
    maxWaitMs: 1,
    minBytes: 1,
    topics: [{ topic: "t".repeat(700), partitions }],
    clusterId: "c".repeat(20_000),
  }
  const frame = Buffer.concat(fetchApi.encode(body, 12, header))
  assert.equal(frame.readInt32BE(0), frame.length - 4)
  // The cluster's id is a tagged field behind everything else: tag 0, its size in three bytes, the string in three more.
  assert.equal(
    frame.subarray(frame.length - 20_000 - 8, frame.length - 20_000).toString("hex"),
    "01" + "00" + "a39c01" + "a19c01",
  )
})

function answerOf(api: ReturnType<typeof everyApi>[number], version: number, seed: number): Buffer {
  return answerFrame(api, version, { message: randomMessage(api.response, version, seed), correlationId: 5 })
}

function isProtocol(error: unknown): boolean {
  return error instanceof MillraceError && error.kind === "protocol"
}
