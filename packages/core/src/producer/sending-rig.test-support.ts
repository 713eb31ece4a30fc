/** A topic over a backend in memory with a virtual clock, and what tests of sending ask of it. */
import assert from "node:assert/strict"
import { DiskFullError, type Manifest, MillraceError } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { type Client, openClient } from "../client/client.ts"
import type { Topic } from "../client/topic.ts"
import { FakeBackend, type Fate } from "./fake-backend.test-support.ts"

export interface Rig {
  readonly clock: VirtualClock
  readonly backend: FakeBackend
  readonly client: Client
  readonly topic: Topic
  /** The same topic through a client of its own. */
  other(): Topic
}

export function rig(options: { partitions?: number; manifest?: Manifest; create?: boolean } = {}): Rig {
  const clock = new VirtualClock()
  const backend = new FakeBackend(clock, options.manifest)
  if (options.create !== false) backend.create("t", options.partitions ?? 1)
  const open = (): Client => openClient(backend.session, {}, { clock, random: seededRandom(1) })
  const topicOf = (client: Client): Topic => client.stream("s").topic("t")
  const client = open()
  return { clock, backend, client, topic: topicOf(client), other: () => topicOf(open()) }
}

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
export const text = (payload: Uint8Array | null): string => new TextDecoder().decode(payload ?? new Uint8Array(0))
export const numbered = (count: number, from = 0): string[] => Array.from({ length: count }, (_, i) => `r${from + i}`)
export const refuse: Fate = { outcome: "refuse" }
export const lasting: Fate = { outcome: "refuse", error: new DiskFullError("no room", { retryable: false }) }

/** Lets the virtual time run until the promise settles. */
export async function run<T>(clock: VirtualClock, promise: Promise<T>, stepMs = 50): Promise<T> {
  let settled = false
  const watched = promise.finally(() => {
    settled = true
  })
  watched.catch(() => {})
  for (let steps = 0; !settled; steps++) {
    assert.ok(steps < 20_000, "nothing settled")
    await clock.advance(stepMs)
  }
  return await watched
}

export async function failed(clock: VirtualClock, promise: Promise<unknown>): Promise<MillraceError> {
  const [outcome] = await run(clock, Promise.allSettled([promise]))
  assert.equal(outcome?.status, "rejected")
  const { reason } = outcome as PromiseRejectedResult
  assert.ok(reason instanceof MillraceError, String(reason))
  return reason
}
