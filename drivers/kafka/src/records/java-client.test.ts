/** Kafka's Java client beside ours, over a broker: what one writes the other reads. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { Headers, HeaderValue, type Session, type WireRecord } from "@millrace/contract"
import { runJava, serverNeed, sharedServer } from "@millrace/servers"
import type { CodecName } from "../compression/codecs.ts"
import { kafkaDriver } from "../driver.ts"
import { readText, recordText } from "./batch-text.test-support.ts"
import type { KafkaEncodedBatch } from "./encoded-batch.ts"

// The same from src and from dist.
const javaClient = new URL("../../src/records/java-client.java", import.meta.url)
const codecs: readonly CodecName[] = ["none", "gzip", "snappy", "lz4", "zstd"]
const perCodec = 40
const firstMillis = 1_600_000_000_000
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)

test("records of the Java client are read as they are, with every codec", async (t) => {
  const server = await kafka(t)
  if (server === undefined) return
  const { servers, topic } = server
  await using session = await sessionOf(servers, "none")
  const { lineage } = await create(session, topic)
  await runJava(javaClient, ["write", servers, topic, String(perCodec)])
  const batches = await readAll(session, { topic, lineage, count: codecs.length * perCodec })
  const wanted = codecs.flatMap((codec, at) =>
    Array.from({ length: perCodec }, (_, i) =>
      recordText({
        offset: at * perCodec + i,
        millis: BigInt(firstMillis + i),
        key: i % 3 === 0 ? null : bytesOf(`${codec}-${i % 3}`),
        value: i % 7 === 0 ? null : bytesOf(`${codec} record ${i} `.repeat(i % 5)),
        headers: [
          ["n", Uint8Array.of(i)],
          ["n", new Uint8Array(0)],
          ["é", bytesOf("x")],
        ],
      }),
    ),
  )
  assert.deepEqual(batches.flatMap(readText), wanted)
})

test("the Java client reads our records as they are, with every codec", async (t) => {
  const server = await kafka(t)
  if (server === undefined) return
  const { servers, topic } = server
  const wanted: string[] = []
  for (const codec of codecs) {
    await using session = await sessionOf(servers, codec)
    if (codec === "none") await create(session, topic)
    const described = await session.catalog.describeTopic({ stream: "", topic })
    const identity = await session.log.identify(described)
    const writer = session.log.writer(described, 0, { records: 1_000, bytes: 1 << 20 })
    for (let i = 0; i < perCodec; i++) {
      const record = ourRecord(codec, i)
      assert.ok(writer.tryAppend(record))
      wanted.push(ourText(record, wanted.length))
    }
    const batch = writer.seal({ id: 1n << 64n, timestampMicros: BigInt(firstMillis) * 1_000n, resend: false })
    const { base } = await session.log.append(batch, { identity: { ...identity, sequence: 0 } })
    assert.equal(base, BigInt(wanted.length - perCodec))
    batch.release()
  }
  const { stdout } = await runJava(javaClient, ["read", servers, topic, String(wanted.length)])
  assert.deepEqual(stdout.trimEnd().split("\n"), wanted)
})

function ourRecord(codec: CodecName, i: number): WireRecord {
  return {
    key: i % 3 === 0 ? null : bytesOf(`${codec}-${i % 3}`),
    payload: i % 7 === 0 ? null : bytesOf(`${codec} record ${i} `.repeat(i % 5)),
    headers:
      i % 2 === 0
        ? Headers.empty
        : Headers.from([
            ["s", "é"],
            ["i", HeaderValue.int32(i)],
            ["s", ""],
          ]),
    id: i % 4 === 0 ? BigInt(i + 1) : undefined,
    timestampMicros: i % 5 === 0 ? BigInt(firstMillis + i) * 1_000n : undefined,
  }
}

function ourText(record: WireRecord, offset: number): string {
  const headers: [string, Uint8Array | null][] = Array.from(record.headers, ([name, value]) => [name, value.bytes])
  if (record.id !== undefined) {
    headers.push(["millrace-id", Buffer.from(record.id.toString(16).padStart(32, "0"), "hex")])
  }
  // string, int32, string: see headerKindCodes.
  if (record.headers.size > 0) headers.push(["millrace-types", bytesOf("262")])
  const millis = record.timestampMicros === undefined ? BigInt(firstMillis) : record.timestampMicros / 1_000n
  return recordText({ offset, millis, key: record.key, value: record.payload, headers })
}

async function kafka(t: {
  skip(reason: string): void
  readonly fullName: string
}): Promise<{ servers: string; topic: string } | undefined> {
  const reason = await serverNeed("kafka")
  if (reason !== undefined) {
    t.skip(`needs kafka: ${reason}`)
    return undefined
  }
  const { url } = await sharedServer("kafka")
  const topic = `java-${process.pid}-${Date.now()}-${t.fullName.length}`
  return { servers: url.replace("kafka://", "").replace(/[/?].*$/, ""), topic }
}

type OpenSession = Session & AsyncDisposable

async function sessionOf(servers: string, compression: CodecName): Promise<OpenSession> {
  const hosts = servers.split(",").map((server) => {
    const [host = "", port] = server.split(":")
    return { host, port: Number(port) }
  })
  const session = await kafkaDriver.connect(
    { scheme: "kafka", hosts, path: "", options: { compression } },
    { timeoutMs: 20_000 },
  )
  return Object.assign(session, { [Symbol.asyncDispose]: () => session.close() })
}

async function create(session: Session, topic: string): Promise<{ readonly lineage: string }> {
  return session.catalog.createTopic(
    { stream: "", topic },
    {
      partitions: 1,
      durability: "written",
      offsetDurability: "written",
      deduplicationWindowMs: 0,
      deduplicateIds: false,
    },
  )
}

async function readAll(
  session: Session,
  from: { readonly topic: string; readonly lineage: string; readonly count: number },
): Promise<KafkaEncodedBatch[]> {
  const reader = session.log.openReader({ isolation: "committed" })
  reader.set([{ stream: "", topic: from.topic, partition: 0, offset: 0n, lineage: from.lineage }])
  const batches: KafkaEncodedBatch[] = []
  for (let count = 0; count < from.count; ) {
    const reads = await reader.next({ maxRecords: 10_000, maxBytes: 1 << 20, minRecords: 1, maxWaitMs: 5_000 })
    for (const read of reads) {
      if (read.error !== undefined) throw read.error
      for (const batch of read.batches as KafkaEncodedBatch[]) {
        batches.push(batch)
        count += batch.count
      }
    }
  }
  await reader.close()
  return batches
}
