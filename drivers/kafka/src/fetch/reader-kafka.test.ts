/** Reading a real Kafka: what foreign producers and the log's own housekeeping leave behind. */
import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { describe, test } from "node:test"
import type { LogReader, Session, TopicDescription } from "@millrace/contract"
import { javaProgram, serverNeed, sharedServer } from "@millrace/servers"
import { append, newTopic, openSession, ownName, until } from "../groups/group-rig.test-support.ts"
import { kafkaTopic } from "../names.ts"

const need = await serverNeed("kafka")
const skip = need === undefined ? false : `needs kafka: ${need}`

describe("reading what others wrote", { skip }, () => {
  test("aborted transactions of one producer are hidden from committed reads, markers from all, and the position moves over both", async () => {
    const { url } = await sharedServer("kafka")
    const { session, close } = await openSession(url)
    const topic = await newTopic(session, 1)
    const work = ["commit:3", "abort:2", "abort:4", "commit:1", "abort:1", "open:2"]
    const servers = url.replace("kafka://", "")
    const args = [servers, ownName("transaction"), kafkaTopic(topic), ...work]
    const program = await javaProgram(new URL("transactions-writer.java", import.meta.url), args)
    const child = spawn(program.command, program.args, { stdio: ["pipe", "pipe", "inherit"] })
    try {
      let said = ""
      child.stdout.on("data", (part) => {
        said += part
      })
      await until("the open transaction", () => (said.includes("open") ? true : undefined), 60_000)
      const committed = read(session, topic, "committed")
      const wanted = ["commit3-0", "commit3-1", "commit3-2", "commit6-0"]
      assert.deepEqual(await committed.texts(wanted.length), wanted)
      // 3 + 1, 2 + 1, 4 + 1, 1 + 1, 1 + 1 records and markers: the stable end is where the open transaction begins.
      await until("the position to pass the last marker", () =>
        committed.poll().then((next) => (next === 16n ? true : undefined)),
      )
      const all = read(session, topic, "uncommitted")
      assert.equal((await all.texts(13)).filter((text) => !text.startsWith("commit")).length, 9)
      child.stdin.write("x")
      await until("the last marker", () => committed.poll().then((next) => (next === 19n ? true : undefined)))
      const [marks] = await session.log.watermarks([{ ...topic, partition: 0 }])
      assert.equal((marks as { readonly end: bigint }).end, 19n, "when all is read, nothing is left")
      assert.deepEqual(await committed.texts(wanted.length), wanted)
      await Promise.all([committed.close(), all.close()])
    } finally {
      child.kill("SIGKILL")
      await close()
    }
  })

  test("a reader that holds a batch keeps it, however much is read behind it", async () => {
    const { url } = await sharedServer("kafka")
    const { session, close } = await openSession(url)
    const topic = await newTopic(session, 2)
    const texts = Array.from({ length: 2000 }, (_, nth) => `record ${nth}`)
    for (const partition of [0, 1]) await append(session, topic, { partition, texts })
    const reader = session.log.openReader({ isolation: "committed" })
    reader.set([0, 1].map((partition) => ({ ...topic, partition, offset: 0n })))
    const seen: (() => string)[][] = [[], []]
    while (seen.some((list) => list.length < texts.length)) {
      for (const part of await reader.next({ maxRecords: 10, maxBytes: 1000, minRecords: 1, maxWaitMs: 1000 })) {
        assert.equal(part.error, undefined)
        if (part.error !== undefined) continue
        for (const batch of part.batches) {
          for (let index = 0; index < batch.count; index++) {
            const payload = batch.payload(index) as Uint8Array
            seen[part.partition]?.push(() => Buffer.from(payload).toString())
          }
        }
      }
    }
    for (const list of seen)
      assert.deepEqual(
        list.map((text) => text()),
        texts,
      )
    await reader.close()
    await close()
  })
})

/** A reader from the beginning that remembers what it has seen. */
function read(
  session: Session,
  topic: TopicDescription,
  isolation: "committed" | "uncommitted",
): {
  texts(count: number): Promise<string[]>
  poll(): Promise<bigint>
  close(): Promise<void>
} {
  const reader: LogReader = session.log.openReader({ isolation })
  reader.set([{ ...topic, partition: 0, offset: 0n }])
  const seen: string[] = []
  let next = 0n
  const poll = async (): Promise<bigint> => {
    for (const part of await reader.next({ maxRecords: 100, maxBytes: 1_000_000, minRecords: 1, maxWaitMs: 200 })) {
      if (part.error !== undefined) throw part.error
      for (const batch of part.batches) {
        for (let index = batch.indexOf(next); index < batch.count; index++)
          seen.push(Buffer.from(batch.payload(index) ?? []).toString())
      }
      next = part.nextOffset
    }
    return next
  }
  const texts = async (count: number): Promise<string[]> => {
    await until(`${count} records`, async () => {
      if (seen.length >= count) return true
      await poll()
      return seen.length >= count ? true : undefined
    })
    return seen
  }
  return { texts, poll, close: () => reader.close() }
}
