/** The disk as a crash of the machine may have left it, at many moments of a program's trace. */
import assert from "node:assert/strict"
import { join } from "node:path"
import type test from "node:test"
import { MillraceError } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import { DiskModel, type Fate, fates } from "./disk-model.ts"
import type { TraceEvent } from "./strace-trace.ts"
import { type Trace, writeImage } from "./traced-program.ts"
import { trialDirectory } from "./trial-directory.ts"

/** What is crashed, and how a test tells what must be there from what is. */
export interface Crashes {
  readonly trace: Trace
  readonly count: number
  readonly seed: number
  /** Gets what the program had been told, in order: all of it that comes before a crash, before that is checked. */
  readonly hear: (mark: string) => void
  /** Opens what a crash left in a directory, and throws when something that was promised is not there. */
  readonly check: (directory: string) => Promise<void>
}

/** A crash after which a promise was broken. */
export interface Broken {
  /** What became of writes that were not synced. */
  readonly fate: Fate
  /** How many events of the trace came before it. */
  readonly at: number
  readonly error: unknown
}

/** Crashes at `count` moments in order, half of them right behind something that was told; answers what went wrong. */
export async function crash(t: test.TestContext, { trace, count, seed, hear, check }: Crashes): Promise<Broken[]> {
  const random = seededRandom(seed)
  const directory = join(trialDirectory(t, { inMemory: true }), "image")
  const moments = Array.from({ length: count }, (_, index) => {
    const at = random.uint32() % trace.events.length
    const mark = trace.events.findIndex(({ kind }, event) => kind === "mark" && event >= at)
    return index % 2 === 0 && mark !== -1 ? mark + 1 : at
  }).sort((a, b) => a - b)
  const model = new DiskModel([trace.parent])
  const broken: Broken[] = []
  let applied = 0
  for (const [index, at] of moments.entries()) {
    for (; applied < at; applied += 1) {
      const event = trace.events[applied] as TraceEvent
      if (event.kind === "mark") hear(event.text)
      model.apply(event)
    }
    const fate = fates[index % fates.length] as Fate
    writeImage(directory, trace, model.image(fate, random))
    await check(directory).catch((error: unknown) => broken.push({ fate, at, error }))
  }
  return broken
}

/** @throws Error that says where the first crash was that broke a promise */
export function assertKept(trace: Trace, broken: readonly Broken[]): void {
  for (const { fate, at, error } of broken) {
    throw new Error(`a crash at event ${at} of ${trace.events.length}, unsynced writes: ${fate}`, { cause: error })
  }
}

/** Without the syncs: what is lost shows as such, or as a store that says that it is damaged. */
export function assertLost(t: test.TestContext, broken: readonly Broken[]): void {
  const lost = broken.filter(({ error }) => error instanceof assert.AssertionError || error instanceof MillraceError)
  t.diagnostic(`${lost.length} images had lost something that was confirmed`)
  assert.ok(lost.length > 0, "nothing was lost without the syncs: the check proves nothing")
}
