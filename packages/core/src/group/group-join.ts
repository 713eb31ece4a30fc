import { AlreadyExistsError, ClosedError, type Membership, MillraceError, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import type { GroupSettings } from "../consumer/consumer-options.ts"

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

/**
 * Tries again after a failure that time may mend (`initRetries`): everything but a wrong call and a client that was closed.
 * @throws what the last try failed with; ClosedError when the client is closed before another one
 */
export async function retried<V>(
  context: Pick<ClientContext, "clock" | "own">,
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
    await rest(context, tries.intervalMs)
  }
}

/** Waits as long as the client lives. @throws ClosedError */
async function rest(context: Pick<ClientContext, "clock" | "own">, ms: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const timer = context.clock.setTimer(ms, resolve)
  try {
    const disown = context.own({ shutdown: async () => reject(new ClosedError("the client was closed")) })
    await promise.finally(disown)
  } finally {
    timer.cancel()
  }
}
