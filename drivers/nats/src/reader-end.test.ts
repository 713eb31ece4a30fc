import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { NotFoundError } from "@millrace/contract"
import type { Connection } from "./connection.ts"
import type { ReaderConsumer } from "./reader-consumer.ts"
import { type EndVerdict, lookAtEnd } from "./reader-end.ts"
import type { TopicLayouts } from "./topic-layout.ts"

const place = { stream: "", topic: "ORDERS", partition: 0 }

interface Situation {
  /** What the leader holds. */
  readonly first?: number
  readonly end: number
  readonly messages: number
  readonly replicas?: number
  /** Whether the leader has a record behind the last one that came. */
  readonly found?: boolean
  readonly pending?: number
  readonly sent?: number
  readonly arrived?: number
}

/** The verdict for a lane that has come to sequence 5, with the requests that it took. */
async function look({ first = 1, end, messages, replicas = 3, found, ...consumer }: Situation): Promise<{
  readonly verdict: EndVerdict["kind"]
  readonly asked: readonly string[]
}> {
  const asked: string[] = []
  const connection = {
    api: async (name: string) => {
      asked.push(name)
      if (found !== true) throw new NotFoundError("no message found")
      return {}
    },
  } as unknown as Connection
  const state = { first_seq: first, last_seq: end, messages, bytes: 0, consumer_count: 1 }
  const info = { config: { name: "ORDERS", num_replicas: replicas }, created: "", state }
  const layouts = {
    partition: async () => ({ layout: {}, streamName: "ORDERS", info }),
  } as unknown as TopicLayouts
  const { pending = 0, sent = 5, arrived = 5 } = consumer
  const { kind } = await lookAtEnd({ connection, layouts }, place, {
    last: 5,
    consumer: { standing: async () => ({ pending, sent }) } as unknown as ReaderConsumer,
    arrived: () => arrived,
  })
  return { verdict: kind, asked }
}

describe("what lies behind the last record that came", () => {
  it("is nothing at the end", async () => {
    assert.deepEqual(await look({ end: 5, messages: 5 }), { verdict: "end", asked: [] })
  })

  it("is a hole where the leader has nothing, and it alone is believed", async () => {
    assert.deepEqual(await look({ end: 8, messages: 5 }), { verdict: "end", asked: ["STREAM.MSG.GET.ORDERS"] })
  })

  it("is owed by a consumer that does not know of it: without another request where nothing was ever deleted", async () => {
    assert.deepEqual(await look({ end: 8, messages: 8 }), { verdict: "owed", asked: [] })
    const deleted = await look({ end: 8, messages: 7, found: true })
    assert.deepEqual(deleted, { verdict: "owed", asked: ["STREAM.MSG.GET.ORDERS"] })
  })

  it("is a hole where a stream lies on one server, and its consumer has nothing", async () => {
    assert.deepEqual(await look({ end: 8, messages: 8, replicas: 1 }), { verdict: "end", asked: [] })
  })

  it("is on its way when the consumer has sent it, or is about to", async () => {
    for (const replicas of [1, 3]) {
      assert.equal((await look({ end: 8, messages: 8, replicas, sent: 6, arrived: 5 })).verdict, "owed")
      assert.equal((await look({ end: 8, messages: 8, replicas, pending: 1 })).verdict, "owed")
    }
  })

  it("was trimmed away when what is left begins later", async () => {
    assert.equal((await look({ first: 7, end: 8, messages: 2 })).verdict, "trimmed")
    assert.equal((await look({ first: 6, end: 8, messages: 3, pending: 3 })).verdict, "owed")
  })
})
