import assert from "node:assert/strict"
import { existsSync, mkdtempSync, rmSync, symlinkSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, it } from "node:test"
import {
  batchId,
  CancelledError,
  ClosedError,
  Headers,
  type SealedBatch,
  type Session,
  type TopicDescription,
} from "@millrace/contract"
import { embeddedDriver } from "./driver.ts"
import type { EmbeddedNative } from "./session.ts"

const name = { stream: "s", topic: "t" }
const spec = {
  partitions: 1,
  durability: "synced",
  offsetDurability: "synced",
  deduplicationWindowMs: 120_000,
  deduplicateIds: false,
} as const
const limits = { maxRecords: 100, maxBytes: 1 << 20, minRecords: 1, maxWaitMs: 60_000 }

let batches = 0n

function connect(path: string, scheme: string = "file"): Promise<Session> {
  return embeddedDriver.connect({ scheme, hosts: [], path, options: {} }, { timeoutMs: 30_000 })
}

async function withDirectory(run: (path: string) => Promise<void>): Promise<void> {
  const path = mkdtempSync(join(tmpdir(), "millrace-test-"))
  try {
    await run(path)
  } finally {
    rmSync(path, { recursive: true, force: true })
  }
}

async function createTopic(session: Session): Promise<TopicDescription> {
  await session.catalog.createStream(name.stream)
  return session.catalog.createTopic(name, spec)
}

function batchOf(session: Session, topic: TopicDescription, count: number): SealedBatch {
  const writer = session.log.writer(topic, 0, { records: 1000, bytes: 1 << 20 })
  for (let i = 0; i < count; i++)
    writer.tryAppend({
      payload: new Uint8Array(10),
      key: null,
      headers: Headers.empty,
      id: undefined,
      timestampMicros: undefined,
    })
  return writer.seal({ id: batchId(1, 1, ++batches), timestampMicros: 1n, resend: false })
}

describe("sessions", () => {
  it("of one store see each other's records, also through a link, and wake each other", async () => {
    await withDirectory(async (path) => {
      const link = `${path}-link`
      symlinkSync(path, link)
      const [one, two] = await Promise.all([connect(path), connect(link)])
      try {
        assert.equal((two.native as EmbeddedNative).directory, (one.native as EmbeddedNative).directory)
        const topic = await createTopic(one)
        const reader = two.log.openReader({ isolation: "committed" })
        reader.set([{ ...name, partition: 0, offset: 0n, lineage: topic.lineage }])
        const next = reader.next(limits)
        await one.log.append(batchOf(one, topic, 3), {})
        const [read] = await next
        assert.equal(read?.error === undefined && read?.nextOffset, 3n)
      } finally {
        await Promise.all([one.close(), two.close()])
        rmSync(link)
      }
    })
  })

  it("settle everything when they close, and refuse what comes later", async () => {
    await withDirectory(async (path) => {
      const session = await connect(path)
      const topic = await createTopic(session)
      const reader = session.log.openReader({ isolation: "committed" })
      reader.set([{ ...name, partition: 0, offset: 0n, lineage: topic.lineage }])
      const next = reader.next(limits)
      const append = session.log.append(batchOf(session, topic, 1), {})
      const closing = session.close()
      assert.deepEqual(await next.then((reads) => reads.length <= 1), true)
      assert.equal((await append).base, 0n)
      await closing
      assert.equal(await session.close(), undefined)
      await assert.rejects(session.catalog.listStreams(), ClosedError)
      await assert.rejects(session.log.append(batchOf(session, topic, 1), {}), ClosedError)
      assert.throws(() => session.log.openReader({ isolation: "committed" }), ClosedError)
      await assert.rejects(reader.next(limits), ClosedError)
    })
  })

  it("have all that the contract knows, in a manifest that nobody changes", async () => {
    await withDirectory(async (path) => {
      const session = await connect(path)
      try {
        const { queues, transactions, state } = session.manifest
        assert.deepEqual([queues.supported, transactions.supported, state.supported], [true, true, true])
        assert.ok(Object.isFrozen(session.manifest) && Object.isFrozen(session.manifest.limits))
      } finally {
        await session.close()
      }
    })
  })

  it("drop the answer to a position that was replaced meanwhile, and go on where they are otherwise", async () => {
    await withDirectory(async (path) => {
      const session = await connect(path)
      try {
        const topic = await createTopic(session)
        for (let i = 0; i < 3; i++) await session.log.append(batchOf(session, topic, 2), {})
        const reader = session.log.openReader({ isolation: "committed" })
        const at = (offset: bigint): void => reader.set([{ ...name, partition: 0, offset, lineage: topic.lineage }])
        at(0n)
        const dropped = reader.next({ ...limits, maxRecords: 2 })
        at(4n)
        assert.deepEqual(await dropped, [])
        const [read] = await reader.next(limits)
        assert.equal(read?.error === undefined && read?.batches[0]?.firstOffset, 4n)
        at(6n)
        const waiting = reader.next(limits)
        await session.log.append(batchOf(session, topic, 1), {})
        const [more] = await waiting
        assert.equal(more?.error === undefined && more?.nextOffset, 7n)
        await reader.close()
      } finally {
        await session.close()
      }
    })
  })
})

describe("connecting", () => {
  it("to memory: gives each a store of its own, which goes with it", async () => {
    const [one, two] = await Promise.all([connect("", "memory"), connect("", "memory")])
    const { directory } = one.native as EmbeddedNative
    await createTopic(one)
    assert.deepEqual(await two.catalog.listStreams(), [])
    assert.ok(existsSync(directory))
    await Promise.all([one.close(), two.close()])
    assert.equal(existsSync(directory), false)
  })

  it("is cancelled with a typed error, before it begins and while it runs", async () => {
    await withDirectory(async (path) => {
      const target = { scheme: "file", hosts: [], path, options: {} }
      const aborted = embeddedDriver.connect(target, { timeoutMs: 30_000, signal: AbortSignal.abort("enough") })
      await assert.rejects(
        aborted,
        (error: CancelledError) => error instanceof CancelledError && error.cause === "enough",
      )
      const abort = new AbortController()
      const running = embeddedDriver.connect(target, { timeoutMs: 30_000, signal: abort.signal })
      abort.abort()
      await assert.rejects(running, CancelledError)
    })
  })

  it("fails with a typed error that names the path when a file stands there", async () => {
    await withDirectory(async (path) => {
      const file = join(path, "millrace.db")
      const session = await connect(path)
      await session.close()
      await assert.rejects(connect(file), { kind: "invalid", message: /leads to a file, not to a directory/ })
      await assert.rejects(connect(""), { kind: "invalid" })
    })
  })
})
