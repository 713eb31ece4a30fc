import { AlreadyExistsError, type Membership, MillraceError, type TopicName } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import type { GroupSettings } from "./consumer-options.ts"

/** Joins a group once, which it creates before where it is missing and `createGroup` allows. */
export async function joinGroup(
  { session }: ClientContext,
  { group, topics }: { readonly group: string; readonly topics: readonly TopicName[] },
  settings: GroupSettings,
): Promise<Membership> {
  if (settings.createGroup) {
    for (const topic of topics) {
      try {
        await session.groups.create(group, topic)
      } catch (error) {
        if (!(error instanceof AlreadyExistsError)) throw error
      }
    }
  }
  const { memberId, sessionTimeoutMs, rebalanceTimeoutMs } = settings
  const timeouts = { sessionTimeoutMs, rebalanceTimeoutMs }
  return session.groups.join(group, topics, memberId === undefined ? timeouts : { ...timeouts, memberId })
}

/** Tries again after a failure that time may mend (`initRetries`): everything but a wrong call and a client that was closed. */
export async function retried<V>(
  clock: Clock,
  tries: { readonly retries: number; readonly intervalMs: number },
  work: () => Promise<V>,
): Promise<V> {
  for (let failed = 0; ; failed++) {
    try {
      return await work()
    } catch (error) {
      const final = error instanceof MillraceError && (error.kind === "invalid" || error.kind === "closed")
      if (final || failed >= tries.retries) throw error
    }
    await new Promise<void>((resolve) => void clock.setTimer(tries.intervalMs, resolve))
  }
}
