/** A server that is gone for a minute while sends go on: what they hold in memory, and how often the client tries to connect. */
import type { Server } from "@millrace/servers"
import { connect } from "millrace"
import type { Benchmark } from "../benchmark.ts"
import { payloads } from "../payload.ts"
import { anonymousBytes } from "../process-memory.ts"
import { type Row, target } from "../row.ts"

/** Sends that wait for their confirmation at most; a caller that sends more waits, as a buffer budget would make it. */
const mostWaiting = 50_000
const perTurn = 100
const recordBytes = 100

const id = "outage-60s"

/** @param start A server of its own with a proxy before it, which counts the attempts to connect. */
export function outage(start: () => Promise<Server>): Benchmark {
  return {
    id,
    async run({ quick }): Promise<Row> {
      await using server = await start()
      const client = await connect(server.url, { publishTimeoutMs: 600_000, publishRetries: 10_000 })
      try {
        const producer = client.stream("bench").topic("outage").producer()
        const [record] = payloads(1, recordBytes)
        await producer.send(record as Uint8Array)
        const load = new Load(() => producer.send(record as Uint8Array))
        await load.run(1_000)
        await load.settle()
        const before = anonymousBytes(process.pid)
        await server.kill()
        const attemptsBefore = server.proxies[0]?.accepted ?? 0
        const seconds = quick ? 3 : 60
        await load.run(seconds * 1000)
        const grown = (anonymousBytes(process.pid) - before) / (1 << 20)
        const attempts = (server.proxies[0]?.accepted ?? 0) - attemptsBefore
        const held = load.waiting
        await server.start()
        await load.settle()
        return row({ grown, attempts, held, seconds, sent: load.sent })
      } finally {
        await client.close()
      }
    },
  }
}

/** Sends as fast as the limit on what waits lets it. */
class Load {
  readonly #send: () => Promise<unknown>
  readonly #underWay = new Set<Promise<unknown>>()
  #failed: unknown
  sent = 0

  constructor(send: () => Promise<unknown>) {
    this.#send = send
  }

  get waiting(): number {
    return this.#underWay.size
  }

  async run(ms: number): Promise<void> {
    const end = performance.now() + ms
    while (performance.now() < end) {
      for (let each = 0; each < perTurn && this.#underWay.size < mostWaiting; each++) this.#one()
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  }

  /** @throws what a send failed with: none may */
  async settle(): Promise<void> {
    await Promise.all(this.#underWay)
    if (this.#failed !== undefined) throw this.#failed
  }

  #one(): void {
    this.sent++
    const sent = this.#send()
      .catch((error: unknown) => {
        this.#failed ??= error
      })
      .finally(() => this.#underWay.delete(sent))
    this.#underWay.add(sent)
  }
}

function row(seen: {
  readonly grown: number
  readonly attempts: number
  readonly held: number
  readonly seconds: number
  readonly sent: number
}): Row {
  const once = { min: seen.grown, max: seen.grown }
  const limit = 64 + (seen.held * recordBytes) / (1 << 20)
  return {
    id,
    unit: "MiB",
    better: "lower",
    ours: seen.grown,
    reference: limit,
    referenceName: "64 MiB and the payloads that wait",
    ratio: seen.grown / limit,
    peers: {
      "attempts to connect": seen.attempts,
      "sends that waited": seen.held,
      "sends in all, each confirmed at the end": seen.sent,
    },
    cpuMicrosPerRecord: null,
    spread: {
      ours: once,
      reference: { min: limit, max: limit },
      ratio: { min: seen.grown / limit, max: seen.grown / limit },
    },
    targets: [
      target("MiB of growth", seen.grown, "at most", limit),
      target("attempts to connect", seen.attempts, "at most", 20),
    ],
    method: `server killed for ${seen.seconds} s, single sends of ${recordBytes} B not awaited, at most ${mostWaiting} waiting; then it comes back and every send is confirmed; one round`,
  }
}
