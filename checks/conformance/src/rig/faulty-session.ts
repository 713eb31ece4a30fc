/** A real session whose appends go wrong as a seed says: acknowledgements that are lost, requests that never arrive, answers out of order. */
import {
  type AppendOptions,
  type AppendResult,
  ConnectionError,
  type PartitionLog,
  type SealedBatch,
  type Session,
  TimeoutError,
} from "@millrace/contract"

/** What happens to one append. `lost`: done, but the answer is not heard. `refused`: not done. */
export type Fate = "well" | "lost" | "refused"

export interface FaultySession extends Session {
  /** How many appends and records reached the backend; each try counts. */
  readonly seen: { appends: number; records: number; lost: number; refused: number }
}

/**
 * @param fate Asked once for each append, in the order of the calls.
 * @param refusal The error of an append that is refused; by default that the connection is cut.
 */
export function faultySession(
  session: Session,
  fate: (append: number) => Fate,
  refusal: () => Error = () => new ConnectionError("the request was not sent: the connection is cut"),
): FaultySession {
  const seen = { appends: 0, records: 0, lost: 0, refused: 0 }
  const append = async (batch: SealedBatch, options: AppendOptions): Promise<AppendResult> => {
    const decided = fate(seen.appends)
    seen.appends++
    seen.records += batch.count
    if (decided === "refused") {
      seen.refused++
      await Promise.resolve()
      throw refusal()
    }
    const result = await session.log.append(batch, options)
    if (decided === "lost") {
      seen.lost++
      throw new TimeoutError("no answer came in time", { outcome: "unknown" })
    }
    return result
  }
  const log: PartitionLog = {
    keyHash: (key) => session.log.keyHash(key),
    writer: (topic, partition, limits) => session.log.writer(topic, partition, limits),
    identify: (topic, bump) => session.log.identify(topic, bump),
    append,
    openReader: (options) => session.log.openReader(options),
    locate: (queries) => session.log.locate(queries),
    watermarks: (partitions) => session.log.watermarks(partitions),
  }
  return {
    manifest: session.manifest,
    catalog: session.catalog,
    log,
    offsets: session.offsets,
    groups: session.groups,
    queues: session.queues,
    transactions: session.transactions,
    state: session.state,
    native: session.native,
    close: () => session.close(),
    seen,
  }
}
