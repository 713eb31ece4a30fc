/** Chapter: where things are: watermarks and anchors, the first and last record, and places in time. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Anchor, Position, TopicDescription } from "@millrace/contract"
import { numbered } from "../rig/records.ts"
import { checkedRefusal } from "../rig/refusal.ts"
import { at, type Rig } from "../rig/rig.ts"

export function placesChapter(rig: Rig): void {
  describe("places", () => {
    test("watermarks are answered one for each partition asked, in order", async () => {
      const topic = await rig.topic({ partitions: 3 })
      await rig.append(topic, 2, ["a", "b"])
      const answers = await rig.session.log.watermarks([at(topic, 2), at(topic, 0), at(topic, 2)])
      assert.deepEqual(answers, [
        { ...at(topic, 2), first: 0n, end: 2n, lineage: topic.lineage },
        { ...at(topic, 0), first: 0n, end: 0n, lineage: topic.lineage },
        { ...at(topic, 2), first: 0n, end: 2n, lineage: topic.lineage },
      ])
      assert.deepEqual(await rig.session.log.watermarks([]), [])
    })

    test("one missing partition or topic does not spoil the other answers", async () => {
      const topic = await rig.topic()
      const missing = { stream: topic.stream, topic: "missing", partition: 0 }
      const marks = await rig.session.log.watermarks([missing, at(topic, 0), at(topic, 5)])
      checkedRefusal(marks[0], { kind: "not-found", says: ["missing"] })
      assert.ok(marks[1] !== undefined && !(marks[1] instanceof Error))
      checkedRefusal(marks[2], { kind: "not-found", says: ["5"] })
      const end: Anchor = { kind: "end" }
      const places = await rig.session.log.locate([
        { ...missing, at: end },
        { ...at(topic, 0), at: end },
        { ...at(topic, 5), at: end },
      ])
      checkedRefusal(places[0], "not-found")
      assert.ok(places[1] !== undefined && !(places[1] instanceof Error))
      checkedRefusal(places[2], "not-found")
    })

    test("first, last and end of a partition, also when it is empty or trimmed", async () => {
      const topic = await rig.topic()
      assert.deepEqual(await places(rig, topic), [0n, 0n, 0n])
      await rig.append(topic, 0, ["a"])
      await rig.append(topic, 0, ["b", "c"])
      assert.deepEqual(await places(rig, topic), [0n, 2n, 3n])
      if (!rig.manifest.catalog.trim.supported) return
      await rig.session.catalog.trim(at(topic, 0), 1n)
      assert.deepEqual(await places(rig, topic), [1n, 2n, 3n])
      await rig.session.catalog.trim(at(topic, 0), 3n)
      assert.deepEqual(await places(rig, topic), [3n, 3n, 3n])
    })

    test("a time leads to the first record at or behind it", async () => {
      const topic = await rig.topic()
      for (let batch = 0; batch < 10; batch++) {
        await rig.append(topic, 0, numbered("r", batch * 2, batch * 2 + 2))
        await new Promise((resolve) => setImmediate(resolve))
      }
      const seen = await rig.readAll(topic, 0)
      for (const record of seen) {
        const expected = seen.find((other) => other.timestampMicros >= record.timestampMicros)
        assert.equal(await inTime(rig, topic, record.timestampMicros), expected?.offset, "of equal times the first")
        const after = seen.find((other) => other.timestampMicros >= record.timestampMicros + 1n)
        assert.equal(await inTime(rig, topic, record.timestampMicros + 1n), after?.offset ?? 20n)
      }
    })

    test("a time before all records leads to the first, one behind all to the end", async () => {
      const topic = await rig.topic()
      await rig.append(topic, 0, ["a", "b"])
      assert.equal(await inTime(rig, topic, 0n), 0n)
      assert.equal(await inTime(rig, topic, rig.now() + 3_600_000_000n), 2n)
      const empty = await rig.topic()
      assert.equal(await inTime(rig, empty, rig.now()), 0n)
    })

    test("places carry the history that they belong to", async () => {
      const topic = await rig.topic()
      const [place] = await rig.session.log.locate([{ ...at(topic, 0), at: { kind: "end" } }])
      assert.ok(place !== undefined && !(place instanceof Error))
      assert.deepEqual(place, { ...at(topic, 0), offset: 0n, lineage: topic.lineage })
    })
  })
}

/** The offsets of first, last and end. */
async function places(rig: Rig, topic: TopicDescription): Promise<bigint[]> {
  const kinds = ["first", "last", "end"] as const
  const answers = await rig.session.log.locate(kinds.map((kind) => ({ ...at(topic, 0), at: { kind } })))
  return answers.map((answer) => found(answer).offset)
}

async function inTime(rig: Rig, topic: TopicDescription, micros: bigint): Promise<bigint> {
  const [answer] = await rig.session.log.locate([{ ...at(topic, 0), at: { kind: "timestampMicros", value: micros } }])
  return found(answer).offset
}

function found(answer: Position | Error | undefined): Position {
  if (answer === undefined || answer instanceof Error) throw answer ?? new Error("locate answered nothing")
  return answer
}
