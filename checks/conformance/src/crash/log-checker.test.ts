/** The checker must be able to fail: each kind of damage is put into a good log and must be reported. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { lanePayload, readLane } from "./lane.ts"
import { type Confirmed, checkLog, type Stored } from "./log-checker.ts"

/** Two ordered lanes in two partitions, and one that only promises an order in each. */
function goodLog(): Stored[] {
  const log: Stored[] = []
  const ends = [0n, 0n]
  for (let index = 0; index < 30; index++) {
    for (const [lane, partition] of [
      ["w1.single", 0],
      ["w2.batch", 1],
      ["w1.xbalanced", index % 2],
    ] as const) {
      const offset = ends[partition] as bigint
      ends[partition] = offset + 1n
      log.push({ lane, counter: index, partition, offset })
    }
  }
  return log
}

/** The same log with offsets counted anew, as a log that lost or gained records would have them. */
function renumbered(log: readonly Stored[]): Stored[] {
  const ends = new Map<number, bigint>()
  return log.map((record) => {
    const offset = ends.get(record.partition) ?? 0n
    ends.set(record.partition, offset + 1n)
    return { ...record, offset }
  })
}

describe("the log checker", () => {
  test("a good log has no problems, whatever is confirmed of it", () => {
    const log = goodLog()
    assert.deepEqual(checkLog(log, log), [])
    assert.deepEqual(checkLog(log.slice(0, 5), log), [])
    assert.deepEqual(checkLog([], log), [])
  })

  test("unconfirmed records at the end of a lane may be missing", () => {
    const log = renumbered(goodLog().filter((record) => record.lane !== "w2.batch" || record.counter < 20))
    assert.deepEqual(checkLog(log, log), [])
  })

  test("a confirmed record that is lost is reported", () => {
    const log = goodLog()
    const confirmed: Confirmed[] = log.filter((record) => record.lane === "w2.batch")
    const last = confirmed.at(-1) as Confirmed
    const problems = checkLog(
      confirmed,
      log.filter((record) => record !== last),
    )
    assert.match(problems.join("\n"), /w2\.batch:29 was confirmed at 1\/\d+, where (nothing|\S+) is/)
  })

  test("a record that is lost in the middle is reported though later ones moved up", () => {
    const log = renumbered(goodLog().filter((record) => !(record.lane === "w1.single" && record.counter === 7)))
    assert.match(checkLog([], log).join("\n"), /w1\.single:8 is at \S+ where w1\.single:7 is due/)
  })

  test("a doubled record is reported", () => {
    const log = goodLog()
    const twice = renumbered([...log, log.find((record) => record.lane === "w2.batch") as Stored])
    assert.match(checkLog([], twice).join("\n"), /w2\.batch:0 is there twice/)
  })

  test("two records that changed places are reported, also in a lane that promises less", () => {
    for (const lane of ["w1.single", "w1.xbalanced"]) {
      const log = goodLog()
      const one = log.findIndex((record) => record.lane === lane && record.counter === 4)
      const other = log.findIndex((record) => record.lane === lane && record.counter === 6)
      const [a, b] = [log[one] as Stored, log[other] as Stored]
      log[one] = { ...a, counter: b.counter }
      log[other] = { ...b, counter: a.counter }
      assert.notDeepEqual(checkLog([], log), [], lane)
    }
  })

  test("a record in another lane's partition, and a gap in the offsets, are reported", () => {
    const log = goodLog()
    assert.match(
      checkLog(
        [],
        log.filter((record) => record.offset !== 3n),
      ).join("\n"),
      /0\/4 follows offset 2/,
    )
    const moved = renumbered(
      log.map((record) =>
        record.lane === "w1.single" && record.counter === 29 ? { ...record, partition: 1 } : record,
      ),
    )
    assert.match(checkLog([], moved).join("\n"), /its lane in partition 0/)
  })

  test("a confirmation with a wrong offset is reported", () => {
    const log = goodLog()
    const first = log[0] as Stored
    assert.match(checkLog([{ ...first, offset: 5n }], log).join("\n"), /was confirmed at 0\/5, where/)
  })

  test("a payload that nobody sent is refused", () => {
    assert.deepEqual(readLane(lanePayload("w.k", 12)), { lane: "w.k", counter: 12 })
    const cut = lanePayload("w.k", 12).slice(0, -1)
    for (const bytes of [null, new Uint8Array(0), cut, Uint8Array.of(0, 1, 2)]) {
      assert.throws(() => readLane(bytes))
    }
  })
})
