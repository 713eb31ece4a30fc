import assert from "node:assert/strict"
import { test } from "node:test"
import type { Manifest } from "@millrace/contract"
import type { Server } from "@millrace/servers"
import { checkChaos, type FoundRecord } from "./chaos-checker.ts"
import { type ChaosResult, runChaos } from "./chaos-run.ts"

export interface ChaosUnderTest {
  /** One process with a proxy before it. */
  start(): Promise<Server>
  readonly manifest: Manifest
  /** What a client that is not ours finds in the topic. @param url Past the proxies. */
  read(url: string, topic: ChaosResult["topic"]): Promise<FoundRecord[]>
}

/** Declares the chaos test of a broker: short, or with `MILLRACE_LONG=1` whole. */
export function chaos(name: string, under: ChaosUnderTest): void {
  const long = process.env.MILLRACE_LONG === "1"
  const plan = long ? { records: 100_000, kills: 3, cuts: 30 } : { records: 12_000, kills: 1, cuts: 5 }
  test(`${name}: ${plan.records} records through ${plan.kills} kills and ${plan.cuts} cuts`, async (t) => {
    await using server = await under.start()
    const result = await runChaos({ server, ...plan })
    assert.deepEqual(result.failed, [])
    assert.equal(result.kills, plan.kills)
    assert.ok(result.cuts > 0, "no connection was cut: the test proves nothing")
    const found = await under.read(server.directUrl, result.topic)
    const once = under.manifest.append.dedup !== "none"
    assert.deepEqual(checkChaos(result.confirmed, found, { once }), [])
    const doubled = found.length - new Set(found.map(({ lane, counter }) => `${lane}:${counter}`)).size
    t.diagnostic(
      `${result.confirmed.length} confirmed, ${found.length} found, ${doubled} of them twice, ${result.cuts} cuts`,
    )
  })
}
