/** A topic on a backend in memory with a virtual clock, for tests of batching producers. */
import assert from "node:assert/strict"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { type Client, openClient } from "../client/client.ts"
import type { Topic } from "../client/topic.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { FakeBackend, type Fate } from "./fake-backend.test-support.ts"
import { PublishFailedError } from "./publish-failed.ts"

export interface Rig {
  readonly clock: VirtualClock
  readonly backend: FakeBackend
  readonly client: Client
  readonly topic: Topic
}

export function rig(partitions: number = 1): Rig {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock)
  backend.create("t", partitions)
  const settings = { publishRetries: 0 }
  const client = openClient(backend.session, settings, { clock, random: seededRandom(1) })
  return { clock, backend, client, topic: client.stream("s").topic("t") }
}

export const bytes: (text: string) => Uint8Array = (text) => new TextEncoder().encode(text)
export const texts: (records: readonly OutgoingRecord[]) => string[] = (records) =>
  records.map(({ payload }) => new TextDecoder().decode(payload ?? undefined))
export const counts: (backend: FakeBackend) => number[] = (backend) => backend.appends.map(({ count }) => count)
export const refuseFirst: (many: number) => (append: number) => Fate = (many) => {
  return (append) => (append < many ? { outcome: "refuse" } : {})
}

/** Lets the virtual time run until the promise settles. */
export async function run<T>(clock: VirtualClock, promise: Promise<T>, mostMs: number = 120_000): Promise<T> {
  let settled = false
  const watched = promise.finally(() => {
    settled = true
  })
  watched.catch(() => {})
  for (let waited = 0; !settled; waited += 1) {
    assert.ok(waited <= mostMs, `nothing settled within ${mostMs} ms`)
    await clock.advance(waited < 100 ? 1 : 100)
  }
  return await watched
}

export async function failure(promise: Promise<unknown>): Promise<PublishFailedError> {
  const error = await promise.then(
    () => new Error("it succeeded"),
    (thrown: unknown) => thrown,
  )
  assert.ok(error instanceof PublishFailedError, String(error))
  return error
}
