/**
 * A process that works in transactions until it is killed. With `serve` it tells its parent; run with a directory it does a few
 * transactions whose writes are traced, and says on its standard output what has committed (`committed <number>`) and what is prepared
 * (`prepared <number> <token>`), at the moment at which it is told so.
 */
import { writeSync } from "node:fs"
import { FencedError, type Session } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import { serve, tell } from "./serve.ts"
import { openThreadSession } from "./thread-session.ts"
import { type Told, Transacting, type TransactingStep } from "./transacting.ts"
import { openSession } from "./trial-log.ts"
import { takeSyncsOut } from "./without-sync.ts"

/** How a process is told to work. */
export interface TransactingSettings {
  readonly seed: number
  /** Aborts what the last incarnation has prepared. */
  readonly lose: boolean
  /** Stands still behind this step of its second transaction, having told it. */
  readonly standBehind?: TransactingStep
}

const stillness = new Promise<never>(() => {})

let session: Session

async function work({ seed, lose, standBehind }: TransactingSettings): Promise<void> {
  const random = seededRandom(seed)
  const transacting = await Transacting.start(session, { lose })
  tell("init")
  if (standBehind === "init") await stillness
  for (let number = 0; ; number += 1) {
    const stands = standBehind !== undefined && number === 1
    const how = {
      prepare: stands ? standBehind === "prepare" : random.uint32() % 3 === 0,
      abort: stands ? standBehind === "abort" : random.uint32() % 5 === 0,
      bytes: random.uint32() % 4 === 0 ? 40_000 : 20 + (random.uint32() % 500),
    }
    await transacting.run(how, async (step, told) => {
      if (told !== undefined) tell(told)
      if (!stands || step !== standBehind) return
      tell("stands")
      await stillness
    })
  }
}

/** What the trace shows: of each kind of transaction some. */
async function trace(directory: string, syncs: string): Promise<void> {
  if (syncs === "without") takeSyncsOut()
  const say = (_: TransactingStep, told?: Told): void => {
    if (told === undefined) return
    const text = "committed" in told ? `committed ${told.committed}` : `prepared ${told.prepared} ${told.token}`
    writeSync(1, `${text}\n`)
  }
  for (let opened = 0; opened < 3; opened += 1) {
    const traced = await (syncs === "without" ? openThreadSession(directory) : openSession(directory))
    const transacting = await Transacting.start(traced)
    for (let number = 0; number < 8; number += 1) {
      const how = { prepare: number % 3 === 1, abort: number % 4 === 2, bytes: number % 2 === 0 ? 40 : 30_000 }
      await transacting.run(how, say)
    }
    await traced.close()
  }
}

const [directory, syncs] = process.argv.slice(2)
if (directory !== undefined) await trace(directory, syncs ?? "with")
else {
  serve({
    async open(at: string) {
      session = await openSession(at)
    },
    work(settings: TransactingSettings) {
      work(settings).catch((error: unknown) => {
        if (!(error instanceof FencedError)) throw error
        tell("fenced")
      })
    },
    close: () => session.close(),
  })
}
