/**
 * Partitions that were just made. The server answers when they are decided; each is set up afterwards, by itself (about 2 ms for each, one
 * after the other). Until then a send waits on the server for 3 s and is refused with 58.
 */
import { MillraceError, TimeoutError, type TopicName } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { deleteConsumerOffset } from "./codec/group-commands.ts"
import type { Consumer } from "./codec/identifier.ts"
import { Pauses } from "./pause.ts"
import { code, type Requests, refusedWith } from "./requests.ts"
import { nameOf } from "./topic-lookup.ts"

/** How long all of them together may take. */
const readyMs = 30_000

/** Partitions that are asked at the same time: half of what a connection has in flight, so that others have their turn. */
const mostAsked = 16

/** Nobody stores an offset under it. */
const asker: Consumer = { kind: "consumer", id: "millrace.ready" }

/**
 * Settles when each takes what is sent to it. They are asked to forget an offset that was never stored: this changes nothing, and goes the way
 * of a send.
 * @throws TimeoutError, outcome `unknown`: the partitions were made
 */
export async function untilReady(
  { requests, clock }: { readonly requests: Requests; readonly clock: Clock },
  name: TopicName,
  partitions: readonly number[],
): Promise<void> {
  const deadlineMs = clock.monotonicMs() + readyMs
  // Later ones are set up later: whoever waits for these finds the others ready.
  const waiting = partitions.toSorted((one, other) => one - other)
  const askAll = async (): Promise<void> => {
    for (let partition = waiting.pop(); partition !== undefined; partition = waiting.pop()) {
      const pauses = new Pauses(clock)
      while (!(await isReady(requests, name, partition))) {
        const leftMs = deadlineMs - clock.monotonicMs()
        if (leftMs <= 0) throw notReady(name, partition)
        await pauses.pause(leftMs)
      }
    }
  }
  await Promise.all(Array.from({ length: mostAsked }, askAll))
}

/** Any other answer comes from a partition that is there, or speaks of a topic that is not there any more. */
async function isReady(requests: Requests, { stream, topic }: TopicName, partition: number): Promise<boolean> {
  try {
    await requests.request(deleteConsumerOffset, { consumer: asker, stream, topic, partition, quorum: true })
  } catch (error) {
    if (refusedWith(error, code.transientNotAccepted)) return false
    if (!(error instanceof MillraceError) || error.context.code === undefined) throw error
  }
  return true
}

function notReady(name: TopicName, partition: number): TimeoutError {
  const { stream, topic } = name
  return new TimeoutError(
    `topic ${nameOf(name)} was made, but its partition ${partition} takes nothing yet after ${readyMs} ms; it may come to`,
    { context: { stream, topic, partition } },
  )
}
