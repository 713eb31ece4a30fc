/** Who listens to a consumer, and what becomes of what nobody heard. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { MillraceError } from "@millrace/contract"
import { ConsumerListeners } from "./consumer-events.ts"

const place = { stream: "s", topic: "t", partition: 0 }

function listeners(): { listeners: ConsumerListeners; failures: MillraceError[] } {
  const failures: MillraceError[] = []
  return { listeners: new ConsumerListeners((error) => void failures.push(error)), failures }
}

describe("a listener", () => {
  test("may be an object of a class with a state of its own", () => {
    class Counter {
      #assigned = 0
      lost = (): void => {}
      get count(): number {
        return this.#assigned
      }
      assigned(): void {
        this.#assigned++
      }
    }
    const { listeners: told, failures } = listeners()
    const counter = new Counter()
    told.add(counter, [place])
    told.tell("assigned", [place])
    assert.deepEqual(failures, [])
    assert.equal(counter.count, 2)
  })

  test("that is added twice is told twice, and taken away one by one", () => {
    const { listeners: told } = listeners()
    let count = 0
    const listener = { assigned: () => void count++ }
    const first = told.add(listener, [])
    const second = told.add(listener, [])
    told.tell("assigned", [place])
    assert.equal(count, 2)
    first[Symbol.dispose]()
    first[Symbol.dispose]()
    told.tell("assigned", [place])
    assert.equal(count, 3)
    second[Symbol.dispose]()
    told.tell("assigned", [place])
    assert.equal(count, 3)
  })

  test("that fails, at once or later, is reported, and the others hear all the same", async () => {
    const { listeners: told, failures } = listeners()
    const heard: string[] = []
    told.add({ lost: () => assert.fail("first") }, [])
    told.add({ lost: (async () => assert.fail("second")) as () => void }, [])
    told.add({ lost: () => void heard.push("third") }, [])
    await told.tellAndWait("lost", [place])
    assert.deepEqual(heard, ["third"])
    assert.deepEqual(
      failures.map(({ kind, message }) => [kind, message.includes('listener for "lost" failed')]),
      [
        ["handler", true],
        ["handler", true],
      ],
    )
  })
})

test("what nobody heard is kept for the first who wants it, a thousand of them at the most", () => {
  const { listeners: told } = listeners()
  for (let to = 1; to <= 1005; to++) told.tell("skipped", { ...place, from: 0n, to: BigInt(to), count: BigInt(to) })
  told.add({ assigned: () => {} }, [])
  const heard: bigint[] = []
  told.add({ skipped: ({ to }) => void heard.push(to) }, [])
  assert.deepEqual([heard.length, heard[0], heard.at(-1)], [1000, 6n, 1005n])
  told.add({ skipped: () => assert.fail("it was heard") }, [])
})
