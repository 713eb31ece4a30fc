import assert from "node:assert/strict"
import { type TestContext, test } from "node:test"
import { serverNeed, sharedServer } from "@millrace/servers"
import { killRun } from "./kill-run.ts"
import { type KillOptions, killReaders } from "./reader-kills.ts"
import { readerKinds } from "./reader-kinds.ts"

const long = process.env.MILLRACE_LONG === "1"

const lonely = readerKinds.filter(({ member }) => member === undefined)
const members = readerKinds.filter(({ member }) => member === true)

test("readers of the embedded log that are killed pass nothing unhandled, or repeat nothing, as their policy promises", async (t) => {
  await kills(t, { lives: long ? 100 : 4, crews: [lonely, members], sessionTimeoutMs: 1_000 })
})

/** How soon a server can be made to give a member up, in ms. */
const sessionTimeouts = { kafka: 6_000, nats: 1_000, iggy: 1_000 }

for (const name of ["kafka", "nats", "iggy"] as const) {
  test(`readers of ${name} that are killed pass nothing unhandled, or repeat nothing, as their policy promises`, async (t) => {
    const need = await serverNeed(name)
    if (need !== undefined) return t.skip(`needs ${name}: ${need}`)
    const sessionTimeoutMs = sessionTimeouts[name]
    const crews = long || sessionTimeoutMs < 2_000 ? [lonely, members] : [lonely]
    const { url } = await sharedServer(name)
    await kills(t, { url, lives: long ? 30 : 2, crews, sessionTimeoutMs })
  })
}

/** @param options.url Of the embedded log when it is absent. */
async function kills(
  t: TestContext,
  options: Pick<KillOptions, "lives" | "crews" | "sessionTimeoutMs"> & { readonly url?: string },
): Promise<void> {
  const result = await killRun(t, (run) => killReaders({ ...run, ...options }))
  t.diagnostic(
    `${result.kills} kills: ${result.handled} handled, ${result.repeated} of them again; ${result.stored} stored`,
  )
  assert.ok(result.handled > 10 * result.kills, "the readers handled next to nothing: this proves nothing")
  assert.ok(result.stored > 0, "nothing was stored: this proves nothing")
}
