import assert from "node:assert/strict"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { it } from "node:test"
import { verifyStore } from "../verify.ts"
import { EngineFixture } from "./engine.test-support.ts"
import { QueueFixture } from "./queue-fixture.test-support.ts"

/** What goes wrong, and what the check says of it. */
const harm: readonly (readonly [sql: string, problem: RegExp])[] = [
  ["UPDATE work_queue SET topic = 99", /queue work \(1\) is of a topic that does not exist \(99\)/],
  ["UPDATE queue_partition SET partition = 7", /queue 1 is somewhere in partition 7/],
  ["UPDATE queue_partition SET next = 1", /lease 1 of queue 1 holds offset 0 and 3 in all/],
  ["UPDATE queue_lease SET open = 4", /lease 1 of queue 1 contradicts itself: 4 of 3 are open/],
  ["UPDATE queue_lease SET done = x'0000'", /lease 1 of queue 1 contradicts itself/],
  ["UPDATE work_queue SET pending = 5", /queue 1 counts 5 records that are handed out, and 3 are/],
  ["UPDATE work_queue SET next_lease = 1", /its next lease is 1 behind 1/],
  ["DELETE FROM queue_holder", /lease 1 of queue 1 is held by nobody/],
  ["UPDATE small_state SET revision = 9", /the value of k has revision 9, and the counter is 1/],
  ["DELETE FROM state_counter", /the value of k has revision 1, and the counter is null/],
]

it("The offline check finds what does not fit together in queues and small state", () => {
  for (const [sql, problem] of harm) {
    using store = new EngineFixture()
    const topic = store.createTopic()
    store.appendMany(topic, 3)
    new QueueFixture(store, topic).pull()
    store.call("state.put", { key: "k", value: new Uint8Array(1), ifRevision: undefined, ttlMs: undefined })
    assert.deepEqual(verifyStore(store.path).problems, [])
    const db = new DatabaseSync(join(store.path, "millrace.db"))
    db.exec(sql)
    db.close()
    const { problems } = verifyStore(store.path)
    assert.ok(
      problems.some((found) => problem.test(found)),
      `${sql}: ${JSON.stringify(problems)}`,
    )
  }
})
