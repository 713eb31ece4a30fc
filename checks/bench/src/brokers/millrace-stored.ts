/** Millrace's driver for NATS, asked only whether the records are stored: the way that sends in the background go. */
import { batchId, type ConnectTarget, Headers, type TopicDescription, type WireRecord } from "@millrace/contract"
import { natsDriver } from "@millrace/nats"
import { systemClock, systemRandom } from "@millrace/runtime"
import { keepOutstanding } from "../outstanding.ts"
import type { Contender, Contestant } from "./contender.ts"

/** @param ids Whether records carry ids, by which the server recognises a resend. */
export function millraceStored(ids: boolean): Contender {
  return {
    name: ids ? "Millrace, in the background" : "Millrace, in the background, no ids",
    async open(url, name): Promise<Contestant> {
      const session = await natsDriver.connect(targetOf(url), { timeoutMs: 10_000 })
      const topic = await session.catalog.createTopic(
        { stream: "bench", topic: name },
        {
          partitions: 1,
          durability: "written",
          offsetDurability: "written",
          deduplicationWindowMs: ids ? 120_000 : 0,
          deduplicateIds: false,
        },
      )
      const { batchRecords, batchBytes } = session.manifest.limits
      const limits = { records: batchRecords, bytes: batchBytes }
      const width = session.manifest.append.inFlight.stored
      const append = async (records: readonly Uint8Array[]): Promise<void> => {
        for (const batch of sealed(session.log, topic, { records, limits })) {
          await session.log.append(batch, { confirm: "stored" })
          batch.release()
        }
      }
      return {
        produce: (records, batches) => keepOutstanding(batches, width, () => append(records)),
        close: () => session.close(),
      }
    },
  }
}

type Log = Awaited<ReturnType<typeof natsDriver.connect>>["log"]

function* sealed(
  log: Log,
  topic: TopicDescription,
  {
    records,
    limits,
  }: { readonly records: readonly Uint8Array[]; readonly limits: { readonly records: number; readonly bytes: number } },
): Generator<ReturnType<ReturnType<Log["writer"]>["seal"]>> {
  let writer = log.writer(topic, 0, limits)
  for (const payload of records) {
    const record: WireRecord = { payload, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined }
    if (writer.tryAppend(record)) continue
    yield writer.seal(stamp())
    writer = log.writer(topic, 0, limits)
    writer.tryAppend(record)
  }
  if (writer.count > 0) yield writer.seal(stamp())
}

function stamp(): { readonly id: bigint; readonly timestampMicros: bigint; readonly resend: boolean } {
  const timestampMicros = systemClock.nowMicros()
  const low = (BigInt(systemRandom.uint32()) << 10n) | BigInt(systemRandom.uint32() & 0x3ff)
  const id = batchId(Number(timestampMicros / 1000n), systemRandom.uint32() & 0xfff, low)
  return { id, timestampMicros, resend: false }
}

function targetOf(url: string): ConnectTarget {
  const hosts = url
    .slice("nats://".length)
    .split(",")
    .map((address) => {
      const { hostname, port } = new URL(`nats://${address}`)
      return { host: hostname, port: Number(port) }
    })
  return { scheme: "nats", hosts, path: "", options: {} }
}
