/** What each run that kills children is given by its test, and how the test says which seed it ran with. */
import { randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TestContext } from "node:test"
import { type Random, seededRandom } from "@millrace/runtime"

export interface KillRun {
  /** The log: one of the embedded driver in `directory`, unless the test has another. */
  readonly url: string
  /** A stream that nobody else has, so that a server can be shared. */
  readonly stream: string
  /** Decides the instants. */
  readonly random: Random
  /** A directory of the run's own, which goes with the test. */
  readonly directory: string
  /** In it, the children's programs and what Node keeps of them: see `prepareChildren`. */
  readonly cache: string
}

/** Runs with the seed of `MILLRACE_SEED`, or a new one; it is said at the start and in front of what the run throws. */
export async function killRun<T>(t: TestContext, run: (given: KillRun) => Promise<T>): Promise<T> {
  const seed = Number(process.env.MILLRACE_SEED ?? Date.now() % 1_000_000)
  t.diagnostic(`seed ${seed}: MILLRACE_SEED=${seed} repeats it`)
  const directory = await mkdtemp(join(tmpdir(), "millrace-killed-"))
  t.after(() => rm(directory, { recursive: true, force: true }))
  return run({
    url: `file:${join(directory, "log")}`,
    stream: `killed-${randomBytes(4).toString("hex")}`,
    random: seededRandom(seed),
    directory,
    cache: join(directory, "compiled"),
  }).catch((error: Error) => {
    throw new Error(`seed ${seed}: ${error.message}`, { cause: error })
  })
}
