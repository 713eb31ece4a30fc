/** A process that is a member of a group: tells what it is given and what is taken from it, and commits when it is asked. */
import type { Claim, Membership, Session } from "@millrace/contract"
import { serve, tell } from "./serve.ts"
import { ensureTopic, openSession, trialTopic } from "./trial-log.ts"

/** Partitions of a change of the assignment. */
export interface MemberChange {
  readonly assigned: readonly number[]
  readonly revoked: readonly number[]
  readonly lost: readonly number[]
}

/** The group that all members of the trials join. */
const group = "members"

let session: Session
let membership: Membership
/** The newest claim of each partition, kept when it is lost, so that a late commit can be tried. */
const claims = new Map<number, Claim>()

async function follow(): Promise<void> {
  for await (const change of membership.changes) {
    for (const claim of change.assigned) claims.set(claim.partition, claim)
    tell({
      assigned: change.assigned.map(({ partition }) => partition),
      revoked: change.revoked.map(({ partition }) => partition),
      lost: change.lost.map(({ partition }) => partition),
    } satisfies MemberChange)
    if (change.revoked.length > 0) await membership.release(change.revoked)
  }
}

serve({
  async open(directory: string, partitions: number) {
    session = await openSession(directory)
    await ensureTopic(session, trialTopic, { partitions })
    await session.groups.create(group, trialTopic).catch(() => undefined)
  },
  async join(sessionTimeoutMs: number) {
    membership = await session.groups.join(group, [trialTopic], { sessionTimeoutMs, rebalanceTimeoutMs: 5_000 })
    follow().catch((error: unknown) => tell({ failed: String(error) }))
  },
  /** Stores an offset under the newest claim of a partition; answers the kind of the refusal, if it was refused. */
  async commit(partition: number, offset: bigint) {
    const claim = claims.get(partition)
    const { lineage } = await session.catalog.describeTopic(trialTopic)
    const entry = { ...trialTopic, partition, offset, lineage, ...(claim === undefined ? {} : { claim }) }
    const [refused] = await session.offsets.store({ kind: "group", name: group }, [entry])
    return refused?.kind
  },
  blockLoop(forMs: number) {
    const end = performance.now() + forMs
    while (performance.now() < end);
  },
  leave: () => membership.leave(),
  close: () => session.close(),
})
