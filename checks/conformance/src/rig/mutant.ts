/** Drivers that are wrong in one way each: the suite must find every one of them. */
import {
  type Driver,
  type EncodedBatch,
  Headers,
  type LogReader,
  NotAssignedError,
  type PartitionRead,
  type Session,
} from "@millrace/contract"

/** A fault that is put between the suite and a right driver. */
export interface Mutant {
  readonly name: string
  /** The chapter that must find it. */
  readonly chapter: string
  readonly wrap: (session: Session) => Session
}

export const mutants: readonly Mutant[] = [
  {
    name: "a driver that ignores producer identities",
    chapter: "deduplication",
    wrap: (session) => withLog(session, { append: (batch) => session.log.append(batch, {}) }),
  },
  {
    name: "a driver that lets a batch overtake the one before",
    chapter: "append",
    wrap: (session) => {
      let calls = 0
      return withLog(session, {
        append: async (batch, options) => {
          if (calls++ % 3 === 0) await new Promise((resolve) => setTimeout(resolve, 20))
          return session.log.append(batch, options)
        },
      })
    },
  },
  {
    name: "a driver that swallows the refusal of a commit",
    chapter: "groups",
    wrap: (session) =>
      withParts(session, {
        offsets: {
          load: (owner, partitions) => session.offsets.load(owner, partitions),
          delete: (owner, entries) => session.offsets.delete(owner, entries),
          store: async (owner, entries) => {
            const outcomes = await session.offsets.store(owner, entries)
            return outcomes.map((outcome) => (outcome instanceof NotAssignedError ? undefined : outcome))
          },
        },
      }),
  },
  {
    name: "a driver that skips a batch now and then",
    chapter: "read",
    wrap: (session) =>
      withReads(session, (read) => (read.error === undefined ? { ...read, batches: read.batches.slice(0, 2) } : read)),
  },
  {
    name: "a driver that sorts headers",
    chapter: "fidelity",
    wrap: (session) => withBatches(session, { headers: (batch, index) => sorted(batch.headers(index)) }),
  },
  {
    name: "a driver that reads a tombstone as empty",
    chapter: "fidelity",
    wrap: (session) => withBatches(session, { payload: (batch, index) => batch.payload(index) ?? new Uint8Array(0) }),
  },
  {
    name: "a driver that says nothing of a changed history",
    chapter: "faults",
    wrap: (session) =>
      withReads(session, (read) =>
        read.error?.kind === "history-changed" ? { ...read, error: undefined, ...nothing } : read,
      ),
  },
  {
    name: "a driver that does not filter what it says it filters",
    chapter: "filters",
    wrap: (session) => withLog(session, { openReader: ({ isolation }) => session.log.openReader({ isolation }) }),
  },
  {
    name: "a driver whose progress leaves out records that no filter selected",
    chapter: "filters",
    wrap: (session) =>
      withReads(session, (read) =>
        read.error !== undefined || read.batches.length > 0 ? read : { ...read, nextOffset: 0n },
      ),
  },
]

/** The driver with the fault in every session. */
export function mutated(driver: Driver, { wrap }: Mutant): Driver {
  return {
    schemes: driver.schemes,
    options: driver.options,
    manifest: driver.manifest,
    connect: async (target, options) => wrap(await driver.connect(target, options)),
  }
}

const nothing = { batches: [], nextOffset: 0n, head: 0n, lineage: "" } as const

/** The session with some of its facets replaced. Facets of a session may be getters of a class: they are read here, not copied. */
function withParts(session: Session, parts: Partial<Pick<Session, "log" | "offsets">>): Session {
  return {
    manifest: session.manifest,
    catalog: session.catalog,
    log: parts.log ?? session.log,
    offsets: parts.offsets ?? session.offsets,
    groups: session.groups,
    queues: session.queues,
    transactions: session.transactions,
    state: session.state,
    native: session.native,
    close: () => session.close(),
  }
}

function withLog(session: Session, changes: Partial<Session["log"]>): Session {
  const { log } = session
  const plain: Session["log"] = {
    keyHash: (key) => log.keyHash(key),
    writer: (topic, partition, limits) => log.writer(topic, partition, limits),
    identify: (topic, bump) => log.identify(topic, bump),
    append: (batch, options) => log.append(batch, options),
    openReader: (options) => log.openReader(options),
    locate: (queries) => log.locate(queries),
    watermarks: (partitions) => log.watermarks(partitions),
  }
  return withParts(session, { log: { ...plain, ...changes } })
}

function withReads(session: Session, change: (read: PartitionRead) => PartitionRead): Session {
  return withLog(session, {
    openReader: (options): LogReader => {
      const reader = session.log.openReader(options)
      return {
        set: (positions) => reader.set(positions),
        next: async (limits) => (await reader.next(limits)).map(change),
        close: () => reader.close(),
      }
    },
  })
}

function withBatches(
  session: Session,
  change: {
    readonly headers?: (batch: EncodedBatch, index: number) => Headers
    readonly payload?: (batch: EncodedBatch, index: number) => Uint8Array | null
  },
): Session {
  const altered = (batch: EncodedBatch): EncodedBatch => ({
    count: batch.count,
    bytes: batch.bytes,
    firstOffset: batch.firstOffset,
    lastOffset: batch.lastOffset,
    offset: (index) => batch.offset(index),
    indexOf: (offset) => batch.indexOf(offset),
    payload: (index) => change.payload?.(batch, index) ?? batch.payload(index),
    key: (index) => batch.key(index),
    headers: (index) => change.headers?.(batch, index) ?? batch.headers(index),
    id: (index) => batch.id(index),
    timestampMicros: (index) => batch.timestampMicros(index),
    originTimestampMicros: (index) => batch.originTimestampMicros(index),
    checksum: (index) => batch.checksum(index),
  })
  return withReads(session, (read) =>
    read.error === undefined ? { ...read, batches: read.batches.map(altered) } : read,
  )
}

function sorted(headers: Headers): Headers {
  return Headers.ofStored([...headers].toSorted(([one], [other]) => one.localeCompare(other)))
}
