/** A server that is gone for a minute while a background producer goes on: memory, CPU, attempts to connect, and what lands afterwards. */
import { systemClock } from "@millrace/runtime"
import { type Server, type ServerKind, serverNeed, startKafka, startNats } from "@millrace/servers"
import type { Benchmark } from "../benchmark.ts"
import { type Child, startChild } from "../child.ts"
import { anonymousBytes } from "../process-memory.ts"
import { type Row, type Target, target } from "../row.ts"
import { sibling } from "../sibling.ts"
import type { OutageReport } from "./outage-report.ts"

const id = "outage"
const mebibyte = 1 << 20
const maxBufferBytes = 32 * mebibyte
const sampleEveryMs = 100

/** How long the load runs before the server goes. */
const warmUpMs = 2_000

const servers: Readonly<Partial<Record<ServerKind, () => Promise<Server>>>> = {
  kafka: () => startKafka({ proxied: true }),
  nats: () => startNats({ proxied: true }),
}

/** Figures of one server. */
interface Outage {
  readonly kind: string
  readonly grownMiB: number
  readonly peakMiB: number
  readonly cpuPercent: number
  readonly attempts: number
  readonly accepted: number
  readonly sent: number
  readonly longestMs: number
}

/** On every server of `servers` that this machine can start. */
export const outage: Benchmark = {
  id,
  async run({ quick }): Promise<Row> {
    const seconds = quick ? 3 : 60
    const outages: Outage[] = []
    const needs: string[] = []
    for (const [kind, start] of Object.entries(servers)) {
      const need = await serverNeed(kind as ServerKind, { to: "start" })
      if (need === undefined) outages.push(await measure(kind, start, seconds))
      else needs.push(`${kind}: ${need}`)
    }
    if (outages.length === 0) throw new Error(`${id} needs a server: ${needs.join("; ")}`)
    return row(outages, seconds)
  },
}

async function measure(kind: string, start: () => Promise<Server>, seconds: number): Promise<Outage> {
  await using server = await start()
  const topic = `outage-${process.pid}`
  const child = startChild(sibling(import.meta.url, "outage.child"), [server.url, topic, String(maxBufferBytes)])
  await child.receive()
  const bytesAtStart = anonymousBytes(child.pid)
  await ask(child, "begin")
  await elapse(warmUpMs)
  await server.kill()
  const attemptsBefore = server.proxies[0]?.accepted ?? 0
  const before = await usage(child)
  let peakBytes = 0
  const startMs = systemClock.monotonicMs()
  while (systemClock.monotonicMs() < startMs + seconds * 1000) {
    await elapse(sampleEveryMs)
    peakBytes = Math.max(peakBytes, anonymousBytes(child.pid))
  }
  const lastedMs = systemClock.monotonicMs() - startMs
  const after = await usage(child)
  const attempts = (server.proxies[0]?.accepted ?? 0) - attemptsBefore
  await server.start()
  const end = (await ask(child, "stop")) as OutageReport
  await ask(child, "check")
  await child.end()
  return {
    kind,
    grownMiB: (peakBytes - bytesAtStart) / mebibyte,
    peakMiB: peakBytes / mebibyte,
    cpuPercent: (after.cpuMicros - before.cpuMicros) / lastedMs / 10,
    attempts,
    accepted: after.sent - before.sent,
    sent: end.sent,
    longestMs: end.longestMs,
  }
}

async function usage(child: Child): Promise<OutageReport> {
  return (await ask(child, "usage")) as OutageReport
}

function ask(child: Child, step: "begin" | "usage" | "stop" | "check"): Promise<unknown> {
  child.send(step)
  return child.receive()
}

function elapse(ms: number): Promise<void> {
  return new Promise((resolve) => void systemClock.setTimer(ms, resolve))
}

function row(outages: readonly Outage[], seconds: number): Row {
  const limit = maxBufferBytes / mebibyte + 64
  const grown = outages.map((each) => each.grownMiB)
  const worst = Math.max(...grown)
  const range = { min: Math.min(...grown), max: worst }
  const targets: Target[] = []
  const peers: Record<string, number> = {}
  for (const each of outages) {
    targets.push(
      target(`MiB of growth, ${each.kind}`, each.grownMiB, "at most", limit),
      target(`% of one core, ${each.kind}`, each.cpuPercent, "below", 5),
      target(`attempts to connect, ${each.kind}`, each.attempts, "at most", 20),
    )
    peers[`MiB at the peak, ${each.kind}`] = each.peakMiB
    peers[`sends accepted meanwhile, ${each.kind}`] = each.accepted
    peers[`sends in all, each landed once and in order, ${each.kind}`] = each.sent
    peers[`ms that a send waited at most, ${each.kind}`] = each.longestMs
  }
  return {
    id,
    unit: "MiB of growth",
    better: "lower",
    ours: worst,
    reference: limit,
    referenceName: "maxBufferBytes and 64 MiB",
    ratio: worst / limit,
    peers,
    cpuMicrosPerRecord: null,
    spread: {
      ours: range,
      reference: { min: limit, max: limit },
      ratio: { min: range.min / limit, max: range.max / limit },
    },
    targets,
    method: `server killed for ${seconds} s; background with the default buffer and failure mode, 10,000 sends of 100 B a second, each acceptance awaited; anonymous memory of a process of its own, beyond what it had when it was connected; one round a server`,
  }
}
