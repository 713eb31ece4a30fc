/**
 * A member of a group in a process of its own, for tests. It releases what is wanted back, tells its parent of every change, and does
 * what its parent asks.
 */
import { type Claim, MillraceError, type OffsetEntry } from "@millrace/contract"
import { natsDriver } from "./driver.ts"

/** What the child is started with. The group is `workers` of the topic `shop/orders`. */
export interface ChildStart {
  readonly port: number
  readonly memberId?: string
  readonly sessionTimeoutMs: number
}

/** What the child tells. */
export type ChildNews =
  | {
      readonly type: "change"
      readonly assigned: readonly number[]
      readonly revoked: readonly number[]
      readonly lost: readonly number[]
    }
  | { readonly type: "ended"; readonly kind: string }
  /** What became of a commit with each claim that there ever was, in the order in which they came. */
  | {
      readonly type: "committed"
      readonly outcomes: readonly { readonly partition: number; readonly outcome: string }[]
    }
  | { readonly type: "unblocked" }

/** What the child is asked. */
export type ChildRequest =
  | { readonly type: "commit"; readonly offset: number }
  | { readonly type: "leave" }
  | { readonly type: "block"; readonly ms: number }

const orders = { stream: "shop", topic: "orders" }
const { port, memberId, sessionTimeoutMs } = JSON.parse(process.argv[2] as string) as ChildStart
const target = { scheme: "nats", hosts: [{ host: "127.0.0.1", port }], path: "", options: {} }
const session = await natsDriver.connect(target, { timeoutMs: 20_000 })
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
      void commit(BigInt(request.offset))
      break
    case "leave":
      void membership.leave()
      break
    case "block":
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, request.ms)
      tell({ type: "unblocked" })
      break
  }
})

try {
  for await (const { assigned, revoked, lost } of membership.changes) {
    known.push(...assigned)
    if (revoked.length > 0) await membership.release(revoked)
    tell({ type: "change", assigned: numbers(assigned), revoked: numbers(revoked), lost: numbers(lost) })
  }
  tell({ type: "ended", kind: "done" })
} catch (error) {
  tell({ type: "ended", kind: error instanceof MillraceError ? error.kind : String(error) })
}
await session.close()
process.disconnect()

async function commit(offset: bigint): Promise<void> {
  const entries = known.map((claim): OffsetEntry => ({ ...orders, partition: claim.partition, offset, lineage, claim }))
  const outcomes = await session.offsets.store({ kind: "group", name: "workers" }, entries)
  tell({
    type: "committed",
    outcomes: entries.map(({ partition }, index) => ({ partition, outcome: outcomes[index]?.kind ?? "stored" })),
  })
}

function numbers(claims: readonly Claim[]): number[] {
  return claims.map(({ partition }) => partition)
}

function tell(news: ChildNews): void {
  process.send?.(news)
}
