import {
  AlreadyExistsError,
  NotFoundError,
  type TopicDescription,
  type TopicName,
  type TopicSpec,
} from "@millrace/contract"
import type { ClientContext } from "./context.ts"
import { topicText } from "./names.ts"

/** What may be created. */
export interface Creation {
  readonly stream: boolean
  /** Absent: the topic is not created. */
  readonly topic: TopicSpec | undefined
}

/** What it needs of a client; a session beside the client's has the same. */
export type EnsureContext = Pick<ClientContext, "session" | "clock" | "topics">

/** How often a race with deletions and creations by others is run again. */
const maxRounds = 10

/** The n-th repetition behind the first waits n times this long, in ms (table 1.2 of the options). */
const roundWaitMs = 50

/**
 * The topic as it is, created first where it is missing and may be. Who loses a race to create it takes the winner's. Changes nothing
 * that exists.
 * @throws NotFoundError when it is missing and may not be created, or others delete it as fast as it is created
 */
export async function ensureTopic(
  context: EnsureContext,
  name: TopicName,
  creation: Creation,
): Promise<TopicDescription> {
  let missing: NotFoundError | undefined
  for (let round = 0; round < maxRounds; round++) {
    if (round > 1) await wait(context, (round - 1) * roundWaitMs)
    context.topics.forget(name)
    try {
      return await context.topics.describe(name)
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error
      missing = error
    }
    if (creation.topic === undefined) break
    try {
      if (creation.stream) await ensureStream(context, name.stream)
      return await context.session.catalog.createTopic({ stream: name.stream, topic: name.topic }, creation.topic)
    } catch (error) {
      const lostRace = error instanceof AlreadyExistsError || (error instanceof NotFoundError && creation.stream)
      if (!lostRace) throw error
    }
  }
  const reason = creation.topic === undefined ? "" : ` (created ${maxRounds} times, and gone each time)`
  throw new NotFoundError(`topic "${topicText(name)}" does not exist${reason}: create it with topic.ensure()`, {
    context: { stream: name.stream, topic: name.topic },
    cause: missing,
  })
}

/** Creates the stream where streams are objects and it is missing. */
export async function ensureStream(context: EnsureContext, stream: string): Promise<void> {
  if (context.session.manifest.catalog.streams === "prefixes" || stream === "") return
  try {
    await context.session.catalog.createStream(stream)
  } catch (error) {
    if (!(error instanceof AlreadyExistsError)) throw error
  }
}

function wait(context: EnsureContext, ms: number): Promise<void> {
  return new Promise((resolve) => void context.clock.setTimer(ms, resolve))
}
