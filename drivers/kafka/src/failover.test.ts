/** Three brokers, three copies of each record, and the leader of a partition killed under load, then another. `MILLRACE_LONG=1`. */
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  type ConnectionChange,
  Headers,
  type Identity,
  MillraceError,
  type SealedBatch,
  type Session,
  type TopicDescription,
} from "@millrace/contract"
import { type Server, serverNeed, startKafka } from "@millrace/servers"
import { kafkaDriver } from "./driver.ts"
import { until } from "./groups/group-rig.test-support.ts"
import { kafkaTopic } from "./names.ts"
import { metadataApi } from "./protocol/api.ts"
import type { KafkaNative } from "./session.ts"

const records = 20_000
const keys = 97
const partitions = 6
const batchRecords = 20
/** How many batches of a partition are under way at a time: as many as a broker remembers of a producer. */
const window = 5
/** How long one partition may go without a confirmation. */
const patienceMs = 60_000

const long = process.env.MILLRACE_LONG === "1"
const need = long ? await serverNeed("kafka", { to: "start" }) : undefined
const skip = long ? (need === undefined ? false : `needs kafka: ${need}`) : "a long run: MILLRACE_LONG=1"

test("leaders that die under load cost nothing that was confirmed, double nothing, and keep the order of each key", {
  skip,
}, async () => {
  await using server = await startKafka({ brokers: 3 })
  const changes: ConnectionChange[] = []
  const hosts = server.ports.map((port) => ({ host: "127.0.0.1", port }))
  const session = await kafkaDriver.connect(
    { scheme: "kafka", hosts, path: "", options: {} },
    { timeoutMs: 30_000, onConnection: (change) => changes.push(change) },
  )
  try {
    const topic = await session.catalog.createTopic(
      { stream: "failover", topic: "records" },
      {
        ...{ partitions, durability: "written", offsetDurability: "written" },
        ...{ deduplicationWindowMs: 0, deduplicateIds: false },
      },
    )
    const identity = await session.log.identify(topic)
    const senders = sendersOf(session, topic, identity)
    const confirmed = (): number => senders.reduce((sum, sender) => sum + sender.confirmed, 0)
    const sending = Promise.all(senders.map((sender) => sender.send()))
    const reading = readAll(session, topic)
    // What fails is told where it is awaited; until then it is nobody's.
    sending.catch(() => {})
    reading.catch(() => {})

    await until("a third to be confirmed", () => (confirmed() >= records / 3 ? true : undefined), patienceMs)
    const first = await killLeader(server, session, 0)
    await until("another third", () => (confirmed() >= (2 * records) / 3 ? true : undefined), patienceMs)
    await server.start(first)
    await caughtUp(session, topic, first)
    const second = await killLeader(server, session, partitions - 1)
    await sending
    assert.equal(confirmed(), records)
    const read = await reading
    for (const [partition, sender] of senders.entries()) assert.deepEqual(read[partition], sender.texts)
    const lost = changes.filter(({ state }) => state === "lost").map((change) => change.server)
    for (const one of [first, second]) assert.ok(lost.includes(`127.0.0.1:${server.ports[one]}`), lost.join())
    assert.ok(lost.length <= 4, `an outage is told once: ${lost.join()}`)
  } finally {
    await session.close()
  }
})

/** Sends the batches of one partition: several under way, and after a failure all that are not confirmed again, in order. */
class Sender {
  confirmed = 0
  readonly texts: readonly string[]
  readonly #session: Session
  readonly #identity: Identity
  readonly #batches: readonly { readonly batch: SealedBatch; readonly sequence: number }[]

  constructor(session: Session, identity: Identity, { texts, topic, partition }: SenderPlan) {
    this.texts = texts
    this.#session = session
    this.#identity = identity
    this.#batches = Array.from({ length: Math.ceil(texts.length / batchRecords) }, (_, nth) => {
      const sequence = nth * batchRecords
      return { batch: filled(session, topic, partition, texts.slice(sequence, sequence + batchRecords)), sequence }
    })
  }

  async send(): Promise<void> {
    let done = 0
    let lastMs = performance.now()
    while (done < this.#batches.length) {
      const sent = this.#batches.slice(done, done + window)
      const outcomes = await Promise.allSettled(
        sent.map(({ batch, sequence }) =>
          this.#session.log.append(batch, { identity: { ...this.#identity, sequence } }),
        ),
      )
      const failed = outcomes.findIndex(({ status }) => status === "rejected")
      const good = failed < 0 ? sent.length : failed
      for (const { batch } of sent.slice(0, good)) {
        this.confirmed += batch.count
        batch.release()
      }
      done += good
      if (good > 0) lastMs = performance.now()
      if (failed < 0) continue
      const { reason } = outcomes[failed] as PromiseRejectedResult
      assert.ok(reason instanceof MillraceError, String(reason))
      // What may be there is sent again under the same sequence, and what is not there as well: the broker tells them apart.
      assert.ok(reason.retryable || reason.outcome === "unknown", `${reason.kind} ${reason.outcome}: ${reason.message}`)
      assert.ok(performance.now() - lastMs < patienceMs, `nothing for ${patienceMs} ms: ${reason.message}`)
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
}

interface SenderPlan {
  readonly texts: readonly string[]
  readonly topic: TopicDescription
  readonly partition: number
}

/** One a partition; the records of a key are numbered and lie in the partition that its hash says. */
function sendersOf(session: Session, topic: TopicDescription, identity: Identity): Sender[] {
  const texts = Array.from({ length: partitions }, (): string[] => [])
  for (let nth = 0; nth < records; nth++) {
    const key = `key-${nth % keys}`
    texts[session.log.keyHash(Buffer.from(key)) % partitions]?.push(`${key} ${nth}`)
  }
  return texts.map((own, partition) => new Sender(session, identity, { texts: own, topic, partition }))
}

function filled(session: Session, topic: TopicDescription, partition: number, texts: readonly string[]): SealedBatch {
  const writer = session.log.writer(topic, partition, { records: batchRecords, bytes: 100_000 })
  for (const text of texts) {
    const key = Buffer.from(text.split(" ")[0] as string)
    writer.tryAppend({
      ...{ payload: Buffer.from(text), key, headers: Headers.empty, id: undefined, timestampMicros: undefined },
    })
  }
  const nowMs = BigInt(Date.now())
  return writer.seal({ id: nowMs << 80n, timestampMicros: nowMs * 1000n, resend: false })
}

/** Follows all partitions while brokers come and go; answers what each has. */
async function readAll(session: Session, topic: TopicDescription): Promise<string[][]> {
  const reader = session.log.openReader({ isolation: "committed" })
  const read = Array.from({ length: partitions }, (): string[] => [])
  const places = new Map(
    read.map((_, partition) => [partition, { ...topic, partition, offset: 0n, lineage: topic.lineage }]),
  )
  reader.set([...places.values()])
  const endMs = performance.now() + 4 * patienceMs
  try {
    for (let count = 0; count < records; ) {
      assert.ok(performance.now() < endMs, `${count} of ${records} records were read`)
      const polled = reader.next({ maxRecords: 1000, maxBytes: 1 << 20, minRecords: 1, maxWaitMs: 500 })
      const parts = await polled.catch(async (error: MillraceError) => {
        if (!error.retryable) throw error
        await new Promise((resolve) => setTimeout(resolve, 100))
        return []
      })
      for (const part of parts) {
        if (part.error !== undefined) throw part.error
        for (const batch of part.batches) {
          for (let index = 0; index < batch.count; index++) {
            read[part.partition]?.push(Buffer.from(batch.payload(index) as Uint8Array).toString())
            count++
          }
        }
      }
    }
    return read
  } finally {
    await reader.close()
  }
}

/** Kills the broker that leads a partition; answers its number among the server's processes. */
async function killLeader(server: Server, session: Session, partition: number): Promise<number> {
  const { partitions: described } = await session.catalog.describeTopic({ stream: "failover", topic: "records" })
  const node = Number(described[partition]?.leader) - 1
  await server.kill("SIGKILL", node)
  return node
}

/** Settles when a broker that came back leads again or could: another may be killed then without taking the last copies. */
async function caughtUp(session: Session, topic: TopicDescription, node: number): Promise<void> {
  const { cluster } = session.native as KafkaNative
  await until(
    "the broker to have all copies",
    async () => {
      const answer = await cluster.request(
        metadataApi,
        { topics: [{ name: kafkaTopic(topic) }], allowAutoTopicCreation: false },
        { kind: "any" },
        { readOnly: true, minVersion: 4 },
      )
      const copies = answer.topics[0]?.partitions ?? []
      return copies.length === partitions && copies.every(({ isrNodes }) => isrNodes.includes(node + 1))
        ? true
        : undefined
    },
    patienceMs,
  )
}
