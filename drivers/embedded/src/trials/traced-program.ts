/** A program whose writes and syncs are traced, and the disk as a crash at some moment of the trace may leave it. */
import assert from "node:assert/strict"
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import type test from "node:test"
import type { DiskImage } from "./disk-model.ts"
import { parseTrace, straceArguments, type TraceEvent } from "./strace-trace.ts"
import { startChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"

/** Larger than any page of the store, so that no write is cut short in the trace. */
const maxWriteBytes = 1 << 20

/** What a program did to its store, and what it said in between. */
export interface Trace {
  readonly parent: string
  readonly store: string
  readonly events: readonly TraceEvent[]
}

/** Runs `<script>.child.ts` to its end; its first value is the store's directory, in one that is made, too. */
export async function traceProgram(t: test.TestContext, script: string, values: readonly string[]): Promise<Trace> {
  const parent = trialDirectory(t)
  const output = join(trialDirectory(t, { inMemory: true }), "trace")
  // Two directories are made: the name of each must be on the disk before anything is confirmed.
  const store = join(parent, "made", "store")
  const under = ["strace", ...straceArguments(output, maxWriteBytes)]
  const child = startChild(t, script, { under, values: [store, ...values], quiet: true })
  assert.equal(await child.exited, 0)
  return { parent, store, events: parseTrace(readFileSync(output, "latin1"), { root: dirname(store) }) }
}

/** Puts the files of an image of the trace's store into a directory, in place of what was there. */
export function writeImage(directory: string, trace: Trace, image: DiskImage): void {
  rmSync(directory, { recursive: true, force: true })
  for (const [path, bytes] of image) {
    // The index of the write-ahead log is memory: a crash leaves nothing of it.
    if (path.endsWith("-shm")) continue
    const to = join(directory, path.slice(trace.store.length))
    mkdirSync(dirname(to), { recursive: true })
    writeFileSync(to, bytes)
  }
}

/** The same trace as if the syncs of files had done nothing. Events keep their places, for syncs speak of those before them. */
export function withoutFileSyncs(trace: Trace): Trace {
  const directories = new Set([trace.parent, trace.store])
  for (const event of trace.events) if (event.kind === "mkdir") directories.add(event.path)
  const dropped = (event: TraceEvent): boolean => event.kind === "sync" && !directories.has(event.path)
  return { ...trace, events: trace.events.map((event) => (dropped(event) ? { kind: "mark", text: "" } : event)) }
}
