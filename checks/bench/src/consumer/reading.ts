/** The loops that the consumer suite measures, the same over every backend. */
import type { Consumer, ConsumerOptions, Topic } from "millrace"
import type { Arm } from "../pairs.ts"
import { recordBytes } from "../producer/load.ts"
import { perSecond, timed } from "../stopwatch.ts"

/** How often a loop that commits by itself does so. */
export const commitEvery = 1000

let consumers = 0

/** An arm that reads `count` records with a consumer of its own name, from the first on. It fails when the bytes are not those. */
export function readingArm(
  name: string,
  of: { readonly count: number; readonly topic: () => Topic; readonly options?: ConsumerOptions },
  read: (consumer: Consumer, count: number) => Promise<number>,
): Arm {
  return {
    name,
    async measure(_directory, share) {
      const count = Math.ceil((of.count * share) / commitEvery) * commitEvery
      await using consumer = of
        .topic()
        .consumer(`bench-${consumers++}`, 0, { startAt: { kind: "first" }, ...of.options })
      let bytes = 0
      const { ms, cpuMicros } = await timed(async () => {
        bytes = await read(consumer, count)
      })
      if (bytes !== count * recordBytes) throw new Error(`${name}: ${bytes} bytes read of ${count * recordBytes}`)
      return { value: perSecond(count, ms), cpuMicrosPerRecord: cpuMicros / count }
    },
  }
}

/** `next` in a loop, a commit every 1,000. */
export async function nextAndCommit(consumer: Consumer, count: number): Promise<number> {
  let bytes = 0
  for (let read = 1; read <= count; read++) {
    const { value } = await consumer.next()
    bytes += value?.payload?.length ?? 0
    if (read % commitEvery === 0) await consumer.commit(value)
  }
  return bytes
}

/** The same without waiting for each commit: what comes while a store is under way shares the next. */
export async function nextAndCommitBehind(consumer: Consumer, count: number): Promise<number> {
  let bytes = 0
  const commits: Promise<void>[] = []
  let failure: unknown
  const fail = (error: unknown): void => {
    failure ??= error
  }
  for (let read = 1; read <= count; read++) {
    const { value } = await consumer.next()
    bytes += value?.payload?.length ?? 0
    if (read % commitEvery !== 0) continue
    commits.push(consumer.commit(value).catch(fail))
  }
  await Promise.all(commits)
  if (failure !== undefined) throw failure
  return bytes
}

/** `for await`; what is stored is the policy's. */
export async function forAwait(consumer: Consumer, count: number): Promise<number> {
  let bytes = 0
  let left = count
  for await (const message of consumer) {
    bytes += message.payload?.length ?? 0
    if (--left === 0) break
  }
  return bytes
}

/** Batch by batch, each message of it looked at, and a commit a batch. */
export async function batchAndCommit(consumer: Consumer, count: number): Promise<number> {
  let bytes = 0
  let left = count
  for await (const batch of consumer.batches()) {
    for (const message of batch) bytes += message.payload?.length ?? 0
    left -= batch.count
    await consumer.commit()
    if (left <= 0) break
  }
  return bytes
}

/** `run` with an async handler, so many at once. */
export function runWith(
  concurrency: number,
  order: "partition" | "key" | "none",
): (consumer: Consumer, count: number) => Promise<number> {
  return async (consumer, count) => {
    let bytes = 0
    let left = count
    const stop = new AbortController()
    const handler = async (message: { readonly payload: Uint8Array | null }): Promise<void> => {
      // What was started beside the last one is not counted.
      if (left <= 0) return
      left--
      bytes += message.payload?.length ?? 0
      await undefined
      if (left === 0) stop.abort()
    }
    await consumer
      .run(handler, { concurrency, order, signal: stop.signal })
      .catch((error: { readonly kind?: string }) => {
        if (error.kind !== "cancelled") throw error
      })
    return bytes
  }
}
