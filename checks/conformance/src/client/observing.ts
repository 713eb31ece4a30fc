/** Chapter: what producers report of themselves, to their own client and to others of the same backend. */
import assert from "node:assert/strict"
import { subscribe, unsubscribe } from "node:diagnostics_channel"
import { env } from "node:process"
import { describe, test } from "node:test"
import { type BatchSent, type Client, diagnostics, type ProducerReport, type Topic } from "millrace"
import { type ClientRig, encode } from "../rig/client-rig.ts"
import { until } from "../rig/deadline.ts"
import { numbered } from "../rig/records.ts"

const variable = "MILLRACE_PRODUCER_TELEMETRY_INTERVAL_MS"

export function observingChapter(rig: ClientRig): void {
  describe("statistics of producers", () => {
    test("a client knows its own producers at once, as long as they live and once they have sent something", async () => {
      const topic = await rig.topic()
      assert.deepEqual(await rig.client.producers(topic), [])
      const producer = topic.producer()
      const background = topic.producer({ background: true })
      assert.deepEqual(await rig.client.producers(topic), [])
      await producer.sendBatch(numbered("r", 0, 3).map(encode))
      await background.send(encode("four"))
      await background.flush()
      // Ids of one millisecond are in no order.
      const reports = (await rig.client.producers(topic)).toSorted((a, b) => b.submittedRecords - a.submittedRecords)
      assert.deepEqual(
        reports.map(({ submittedRecords, confirmedRecords, failedCalls }) => [
          submittedRecords,
          confirmedRecords,
          failedCalls,
        ]),
        [
          [3, 3, 0],
          [1, 1, 0],
        ],
      )
      const [report] = reports
      assert.ok(report !== undefined)
      assert.equal(report.stream, topic.stream)
      assert.equal(report.topic, topic.name)
      assert.match(report.instanceId, /^[0-9A-HJKMNP-TV-Z]{26}$/)
      assert.equal(report.submittedPayloadBytes, 6)
      assert.equal(report.latency.samples, 1)
      assert.ok(!("p99Micros" in report.latency), "unknown is absent, and not 0")
      await producer.shutdown()
      await background.shutdown()
      assert.deepEqual(await rig.client.producers(topic), [])
    })

    test("another client reads what was reported, under the same id each time; what is no report is passed over", async (t) => {
      if (rig.under.isolated !== undefined) return t.skip(rig.under.isolated)
      const reporting = await connectedWithInterval(rig, "1000")
      const topic = await rig.topic()
      const producer = rig.through(reporting, topic).producer()
      await producer.send(encode("one"))
      const first = await reportOf(rig.client, topic, ({ confirmedRecords }) => confirmedRecords === 1)
      assert.equal(first.expiresAtMillis - first.observedAtMillis, 3_000)

      const strays = rig.client.stream("millrace").topic("producers").producer()
      await strays.sendBatch([
        encode("no report"),
        new Uint8Array(0),
        { payload: null },
        { payload: Uint8Array.of(0xa1, 0x61) },
      ])
      await strays.shutdown()
      await producer.sendBatch(numbered("r", 0, 9).map(encode))
      const second = await reportOf(rig.client, topic, ({ confirmedRecords }) => confirmedRecords === 10)
      assert.equal(second.instanceId, first.instanceId)
      assert.ok(second.observedAtMillis > first.observedAtMillis)
      await producer.shutdown()
      // Others wait for the report to expire; the client itself knows.
      assert.deepEqual(await reporting.producers(topic), [])
      await reporting.close()
    })

    test("the topic of the reports is not among the streams that are listed", async () => {
      const names: string[] = []
      for await (const { stream } of rig.client.streams()) names.push(stream)
      assert.ok(!names.includes("millrace"))
    })

    test("without reports nobody else knows of a producer, and a client with reports closes without waiting for one", async () => {
      const silent = await connectedWithInterval(rig, "0")
      const topic = await rig.topic(1, {}, silent)
      await rig.through(silent, topic).producer().send(encode("one"))
      assert.equal((await silent.producers(topic)).length, 1)
      if (rig.under.isolated === undefined) assert.deepEqual(await rig.client.producers(topic), [])
      await silent.close()
    })
  })

  describe("diagnostics channels", () => {
    test("a batch that was confirmed is told with its place", async () => {
      const topic = await rig.topic(2)
      const heard: BatchSent[] = []
      const listen = (message: unknown): void => {
        const sent = message as BatchSent
        if (sent.topic === topic.name) heard.push(sent)
      }
      const { name } = diagnostics["producer.batch.sent"]
      assert.equal(name, "millrace:producer.batch.sent")
      subscribe(name, listen)
      try {
        const producer = topic.producer()
        await producer.sendBatch(numbered("r", 0, 5).map(encode), { partition: 1 })
        await producer.shutdown()
      } finally {
        unsubscribe(name, listen)
      }
      assert.deepEqual(
        heard.map(({ durationMs, baseOffset, ...rest }) => {
          assert.ok(durationMs > 0)
          assert.ok(baseOffset === 0n || baseOffset === undefined)
          return rest
        }),
        [{ stream: topic.stream, topic: topic.name, partition: 1, records: 5, attempt: 1, duplicates: 0 }],
      )
    })
  })
}

async function connectedWithInterval(rig: ClientRig, interval: string): Promise<Client> {
  const before = env[variable]
  env[variable] = interval
  try {
    return await rig.connect()
  } finally {
    if (before === undefined) delete env[variable]
    else env[variable] = before
  }
}

/** The report of the topic's only producer, once it is as wanted. */
async function reportOf(
  client: Client,
  topic: Topic,
  wanted: (report: ProducerReport) => boolean,
): Promise<ProducerReport> {
  return await until(`a report of a producer of ${topic.stream}/${topic.name}`, async () => {
    const reports = await client.producers(topic)
    assert.ok(reports.length <= 1, "one producer, one report")
    return reports.find(wanted)
  })
}
