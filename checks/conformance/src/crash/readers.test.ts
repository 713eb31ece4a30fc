import assert from "node:assert/strict"
import { randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type TestContext, test } from "node:test"
import { seededRandom } from "@millrace/runtime"
import { serverNeed, sharedServer } from "@millrace/servers"
import { type KillOptions, killReaders } from "./reader-kills.ts"
import { readerKinds } from "./reader-kinds.ts"

const long = process.env.MILLRACE_LONG === "1"

const lonely = readerKinds.filter(({ member }) => member === undefined)
const members = readerKinds.filter(({ member }) => member === true)

test("readers of the embedded log that are killed pass nothing unhandled, or repeat nothing, as their policy promises", async (t) => {
  const crews = [lonely, members]
  await kills(t, async (directory) => `file:${join(directory, "log")}`, {
    lives: long ? 100 : 4,
    crews,
    sessionTimeoutMs: 1_000,
  })
})

/** How soon a server can be made to give a member up, in ms. */
const sessionTimeouts = { kafka: 6_000, nats: 1_000, iggy: 1_000 }

for (const name of ["kafka", "nats", "iggy"] as const) {
  test(`readers of ${name} that are killed pass nothing unhandled, or repeat nothing, as their policy promises`, async (t) => {
    const need = await serverNeed(name)
    if (need !== undefined) return t.skip(`needs ${name}: ${need}`)
    const sessionTimeoutMs = sessionTimeouts[name]
    const crews = long || sessionTimeoutMs < 2_000 ? [lonely, members] : [lonely]
    await kills(t, async () => (await sharedServer(name)).url, { lives: long ? 30 : 2, crews, sessionTimeoutMs })
  })
}

async function kills(
  t: TestContext,
  url: (directory: string) => Promise<string>,
  options: Pick<KillOptions, "lives" | "crews" | "sessionTimeoutMs">,
): Promise<void> {
  const seed = Number(process.env.MILLRACE_SEED ?? Date.now() % 1_000_000)
  t.diagnostic(`seed ${seed}: MILLRACE_SEED=${seed} repeats it`)
  const directory = await mkdtemp(join(tmpdir(), "millrace-readers-"))
  t.after(() => rm(directory, { recursive: true, force: true }))
  const result = await killReaders({
    url: await url(directory),
    stream: `killed-${randomBytes(4).toString("hex")}`,
    ...options,
    random: seededRandom(seed),
    cache: join(directory, "compiled"),
  }).catch((error: Error) => {
    throw new Error(`seed ${seed}: ${error.message}`, { cause: error })
  })
  t.diagnostic(
    `${result.kills} kills: ${result.handled} handled, ${result.repeated} of them again; ${result.stored} stored`,
  )
  assert.ok(result.handled > 10 * result.kills, "the readers handled next to nothing: this proves nothing")
  assert.ok(result.stored > 0, "nothing was stored: this proves nothing")
}
