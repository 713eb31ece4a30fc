/** A session over the server in memory, and what tests need to fill topics and read them. */
import {
  batchId,
  Headers,
  type LogReader,
  type ReadLimits,
  type Session,
  type TopicDescription,
  type TopicName,
  type TopicSpec,
} from "@millrace/contract"
import { type Clock, seededRandom, systemClock } from "@millrace/runtime"
import { MemoryIggy } from "./memory-server.test-support.ts"
import { IggySession } from "./session.ts"

export const plainSpec: TopicSpec = {
  partitions: 1,
  durability: "written",
  offsetDurability: "written",
  deduplicationWindowMs: 0,
  deduplicateIds: false,
}

export class Bench implements AsyncDisposable {
  readonly iggy: MemoryIggy
  readonly session: Session
  readonly clock: Clock

  static async open(clock: Clock = systemClock): Promise<Bench> {
    const iggy = await MemoryIggy.start()
    return new Bench(iggy, await connectTo(iggy, { clock }), clock)
  }

  private constructor(iggy: MemoryIggy, session: Session, clock: Clock) {
    this.iggy = iggy
    this.session = session
    this.clock = clock
  }

  /** A topic of its own stream `s`, which is made with the first. */
  async topic(topic = "t", settings: Partial<TopicSpec> = {}): Promise<TopicDescription> {
    if (!this.iggy.streams.has("s")) await this.session.catalog.createStream("s")
    return this.session.catalog.createTopic({ stream: "s", topic }, { ...plainSpec, ...settings })
  }

  append(topic: TopicDescription, payloads: readonly string[], partition = 0): Promise<bigint | undefined> {
    return appendTo(this.session, topic, payloads, partition)
  }

  reader(topic: TopicDescription, offset = 0n, partition = 0): LogReader {
    const reader = this.session.log.openReader({ isolation: "committed" })
    reader.set([{ ...nameOf(topic), partition, offset, lineage: topic.lineage }])
    return reader
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.session.close()
    await this.iggy.stop()
  }
}

let seed = 0
let batches = 0

/** One batch; answers the offset of its first record. */
export async function appendTo(
  session: Session,
  topic: TopicDescription,
  payloads: readonly string[],
  partition = 0,
): Promise<bigint | undefined> {
  const writer = session.log.writer(topic, partition, { records: 10_000, bytes: 1 << 20 })
  for (const payload of payloads) {
    const record = { payload: Buffer.from(payload), key: null, headers: Headers.empty, id: undefined }
    writer.tryAppend({ ...record, timestampMicros: undefined })
  }
  const id = batchId(1_000, 1, BigInt(++batches))
  const batch = writer.seal({ id, timestampMicros: 1_764_288_000_000_000n, resend: false })
  try {
    return (await session.log.append(batch, {})).base
  } finally {
    batch.release()
  }
}

/** Another session on the same server, or on the port of a proxy before it. */
export function connectTo(
  iggy: MemoryIggy,
  { clock = systemClock, port = iggy.server.port }: { readonly clock?: Clock; readonly port?: number } = {},
): Promise<Session> {
  const target = {
    addresses: [{ host: "127.0.0.1", port }],
    credentials: { username: "iggy", password: "iggy" },
    heartbeatMs: 5_000,
    requestTimeoutMs: 5_000,
    version: undefined,
  }
  return IggySession.open(target, { timeoutMs: 5_000 }, { clock, random: seededRandom(++seed) })
}

export const roomy: ReadLimits = { maxRecords: 1_000, maxBytes: 1 << 20, minRecords: 1, maxWaitMs: 5_000 }

export function nameOf({ stream, topic }: TopicName): TopicName {
  return { stream, topic }
}

/** The payloads of a poll, in order; the kind of the error for a partition that failed. */
export async function polled(reader: LogReader, limits: Partial<ReadLimits> = {}): Promise<string[]> {
  const reads = await reader.next({ ...roomy, ...limits })
  return reads.flatMap((read) => {
    if (read.error !== undefined) return [`!${read.error.kind}`]
    return read.batches.flatMap((batch) =>
      Array.from({ length: batch.count }, (_, index) => Buffer.from(batch.payload(index) ?? []).toString()),
    )
  })
}

/** Asks until there is an answer; the test's own time limit bounds it. */
export async function eventually<T>(ask: () => Promise<T | undefined>): Promise<T> {
  for (;;) {
    const answer = await ask()
    if (answer !== undefined) return answer
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
