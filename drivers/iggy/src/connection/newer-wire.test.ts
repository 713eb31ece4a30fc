/** Wire 0.12 as its description has it: no server of it was at hand, so these tests hold the code to the text alone. */
import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { Headers, type MillraceError } from "@millrace/contract"
import { SlabPool, seededRandom, systemClock } from "@millrace/runtime"
import { IggyBatchWriter } from "../batch/batch-writer.ts"
import { createStream, createTopic, deleteStream, purgeTopic, updateResource } from "../codec/catalog-commands.ts"
import {
  fetchMessages,
  getPartitionRoute,
  pollMessages,
  pollMessagesDeferred,
  sendMessages,
} from "../codec/message-commands.ts"
import { pollMessages as pollRequest } from "../codec/message-structures.ts"
import { ByteReader } from "../wire/byte-reader.ts"
import { ByteWriter } from "../wire/byte-writer.ts"
import type { Codec } from "../wire/codec.ts"
import { register } from "../wire/operation.ts"
import { packedVersion } from "../wire/version.ts"
import { IggyConnection } from "./connection.ts"
import {
  clusterMetadata,
  obliging,
  type Received,
  refusal,
  reply,
  ScriptedServer,
} from "./scripted-server.test-support.ts"

function written<T>(codec: Codec<T>, value: T): Buffer {
  const writer = new ByteWriter()
  codec.write(writer, value, "0.12")
  return writer.bytes()
}

const soon = { timeoutMs: 5000 }
const poll = {
  consumer: { kind: "consumer", id: "c" },
  stream: "s",
  topic: "t",
  partition: 3,
  strategy: { kind: "offset", value: 0n },
  count: 1,
  autoCommit: false,
} as const
const emptyPoll = Buffer.alloc(40)
const oneNode = Buffer.alloc(8)

describe("wire 0.12", () => {
  it("is the version 12290", () => {
    assert.equal(packedVersion("0.12"), 12290)
    assert.equal(packedVersion("0.11"), 11264)
  })

  it("has structures of the described sizes", () => {
    const context = { incarnation: 1n, ownerGeneration: 2n, metadataOp: 3n }
    const base = { id: 1, createdMicros: 2n, segmentsCount: 3, currentOffset: 4n, sizeBytes: 5n, messagesCount: 6n }
    const part = { ...base, context, memberNodes: [7, 8], inSyncNodes: [9] }
    const names = {
      id: 1,
      createdMicros: 2n,
      sizeBytes: 5n,
      messagesCount: 6n,
      name: "abc",
      options: [],
      derivedOptions: [],
    }
    const fixed = { partitionsCount: 3, messageExpiryMicros: 0n, compression: "none", maxSizeBytes: 0n } as const
    assert.equal(written(createTopic.reply, { ...names, ...fixed, partitions: [] }).length, 33 + 3 + 8)
    assert.equal(written(createTopic.reply, { ...names, ...fixed, partitions: [part] }).length, 33 + 3 + 8 + 64 + 3 + 2)
    assert.equal(written(createStream.reply, { ...names, topicsCount: 1 }).length, 33 + 3 + 8)
    const one = {
      partition: 1,
      strategy: { kind: "next", value: 0n },
      maxBytes: 344,
      incarnation: 1n,
      ownerGeneration: 0n,
    } as const
    const fetch = {
      ...{ consumer: poll.consumer, stream: "s", topic: "t", waitMicros: 0n, requestTimeoutMicros: 1_000_000n },
      ...{ minCount: 1, count: 1, maxBytes: 344, autoCommit: false },
    }
    const none = written(fetchMessages.request, { ...fetch, partitions: [] }).length
    assert.equal(written(fetchMessages.request, { ...fetch, partitions: [one] }).length - none, 33)
    const plain = written(pollRequest, poll).length
    const deferred = { ...poll, waitMicros: 1n, minCount: 1, maxBytes: 344, requestTimeoutMicros: 2n }
    assert.equal(written(pollMessagesDeferred.request, deferred).length - plain, 24)
    assert.equal(getPartitionRoute.reply.read(new ByteReader(Buffer.alloc(25, 1), "a route"), "0.12").primaryReplica, 1)
    const patch = {
      resource: { scope: "topic", stream: "s", topic: "t" },
      reset: ["message_expiry"],
      options: [],
    } as const
    const bytes = written(updateResource.request, patch)
    assert.deepEqual([bytes[0], bytes[7], bytes[8]], [1, 1, 14])
    assert.deepEqual(updateResource.request.read(new ByteReader(bytes, "a patch"), "0.12"), patch)
  })

  it("names the partition's life, asks for it once, and again when it is refused", async () => {
    let incarnation = 41n
    const route = (): Buffer => {
      const body = Buffer.alloc(25)
      body.writeBigUInt64LE(incarnation, 0)
      body.writeBigUInt64LE(7n, 8)
      return body
    }
    const lives: bigint[] = []
    const spoken = (request: Received): bigint => request.context?.incarnation ?? 0n
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.code === clusterMetadata) visitor.send(reply(request, oneNode))
        else if (request.code === getPartitionRoute.code) visitor.send(reply(request, route()))
        else if (request.code === pollMessages.code || request.operation === sendMessages.operation) {
          lives.push(spoken(request))
          if (spoken(request) !== incarnation) visitor.send(refusal(request, 87))
          else visitor.send(reply(request, request.code === pollMessages.code ? emptyPoll : Buffer.alloc(0)))
        } else return false
        return true
      }, "0.12"),
    )
    await using connection = await IggyConnection.open(
      {
        addresses: [{ host: "127.0.0.1", port: server.port }],
        credentials: { username: "iggy", password: "iggy" },
        clock: systemClock,
        random: seededRandom(1),
        version: "0.12",
        dialTimeoutMs: 2000,
        heartbeatMs: 5000,
      },
      soon,
    )
    await Promise.all([connection.request(pollMessages, poll, soon), connection.request(pollMessages, poll, soon)])
    const target = { topic: { stream: "s", topic: "t" }, lineage: "", partition: 3 }
    const writer = new IggyBatchWriter(target, new SlabPool(), { records: 1, bytes: 4096 })
    writer.tryAppend({ payload: null, key: null, headers: Headers.empty, id: 1n, timestampMicros: undefined })
    const batch = writer.seal({ id: 1n << 20n, timestampMicros: 1n, resend: false })
    assert.deepEqual(await connection.send(batch, soon), [])
    const routes = (): number => server.received.filter((request) => request.code === getPartitionRoute.code).length
    assert.equal(routes(), 1)
    incarnation = 42n
    const error = await connection.request(pollMessages, poll, soon).catch((reason: MillraceError) => reason)
    assert.ok(error instanceof Error && error.retryable && error.outcome === "rejected")
    await connection.request(pollMessages, poll, soon)
    assert.deepEqual(lives, [41n, 41n, 41n, 41n, 42n])
    assert.equal(routes(), 2)

    const login = server.received.find((request) => request.operation === register)
    assert.notEqual(login?.stamp, 0n)
    assert.equal(login?.body.readUInt32LE(0), 12290)
    await connection.request(deleteStream, { stream: "s" }, soon)
    assert.notEqual(server.received.at(-1)?.stamp, 0n)
    assert.equal(server.received.find((request) => request.operation === sendMessages.operation)?.stamp, 0n)

    const gone = await connection
      .request(purgeTopic, { stream: "s", topic: "t" }, soon)
      .catch((reason: MillraceError) => reason)
    assert.ok(gone instanceof Error && gone.kind === "unsupported")
  })
})
