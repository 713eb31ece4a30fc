/**
 * A member of a group in a process of its own, for tests. It releases what is wanted back, tells its parent of every change, and does
 * what its parent asks: commit with every claim that it ever had, block its event loop, leave.
 */
import type { Claim, OffsetEntry } from "@millrace/contract"
import { MillraceError } from "@millrace/contract"
import { embeddedDriver } from "./driver.ts"

/** What the child is started with. */
export interface ChildStart {
  readonly directory: string
  readonly memberId?: string
  readonly sessionTimeoutMs: number
}

/** What the child tells. Partitions of the topic `shop/orders`. */
export type ChildNews =
  | { readonly type: "change"; readonly assigned: number[]; readonly revoked: number[]; readonly lost: number[] }
  | { readonly type: "ended"; readonly kind: string }
  | { readonly type: "committed"; readonly outcomes: Record<string, string> }
  | { readonly type: "blocked" }

/** What the child is asked. */
export type ChildRequest =
  | { readonly type: "commit" }
  | { readonly type: "leave" }
  | { readonly type: "block"; readonly ms: number }

const { directory, memberId, sessionTimeoutMs } = JSON.parse(process.argv[2] as string) as ChildStart
const orders = { stream: "shop", topic: "orders" }
const target = { scheme: "file", hosts: [], path: directory, options: {} }
const session = await embeddedDriver.connect(target, { timeoutMs: 20_000 })
const { lineage } = await session.catalog.describeTopic(orders)
const membership = await session.groups.join("workers", [orders], {
  sessionTimeoutMs,
  rebalanceTimeoutMs: 10_000,
  ...(memberId === undefined ? {} : { memberId }),
})
const known: Claim[] = []

process.on("message", (request: ChildRequest) => {
  switch (request.type) {
    case "commit":
      void commit()
      break
    case "leave":
      void membership.leave()
      break
    case "block":
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, request.ms)
      tell({ type: "blocked" })
      break
  }
})

try {
  for await (const { assigned, revoked, lost } of membership.changes) {
    known.push(...assigned)
    await membership.release(revoked)
    tell({ type: "change", assigned: numbers(assigned), revoked: numbers(revoked), lost: numbers(lost) })
  }
  tell({ type: "ended", kind: "done" })
} catch (error) {
  tell({ type: "ended", kind: error instanceof MillraceError ? error.kind : String(error) })
}
await session.close()
process.disconnect()

/** Offset 1 for every claim that there ever was, in the order in which they came. */
async function commit(): Promise<void> {
  const entries: OffsetEntry[] = known.map((claim) => ({
    ...orders,
    partition: claim.partition,
    offset: 1n,
    lineage,
    claim,
  }))
  const outcomes = await session.offsets.store({ kind: "group", name: "workers" }, entries)
  const texts = outcomes.map((outcome, index) => [`${index}:${known[index]?.partition}`, outcome?.kind ?? "stored"])
  tell({ type: "committed", outcomes: Object.fromEntries(texts) })
}

function numbers(claims: readonly Claim[]): number[] {
  return claims.map(({ partition }) => partition)
}

function tell(news: ChildNews): void {
  process.send?.(news)
}
