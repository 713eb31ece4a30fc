import {
  type Anchor,
  InvalidError,
  type Lineage,
  MillraceError,
  type OffsetOwner,
  type Position,
  type Session,
  type TopicPartition,
  type Watermarks,
} from "@millrace/contract"
import type { TopicDirectory } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import type { StartAt } from "./start-at.ts"

/** Where a partition begins. */
export interface StartPosition {
  readonly offset: bigint
  readonly lineage: Lineage
  /** Leave out what was appended before, in the batch that holds `offset`: an anchor may answer the batch instead of the record. */
  readonly fromMicros: bigint | undefined
  /** The progress that is stored in this history. */
  readonly storedNext: bigint | undefined
}

interface StartRequest {
  readonly partition: TopicPartition
  /** `next` for partitions that are gained after the start (table 1.7, "Scope"). */
  readonly startAt: StartAt
}

/**
 * Finds the start of several partitions at once: after the stored offset where there is one (and `allowReplay` does not overrule it),
 * else where `startAt` says. One outcome a request, in order.
 */
export async function findStarts(
  session: Session,
  requests: readonly StartRequest[],
  options: { readonly owner: OffsetOwner | undefined; readonly allowReplay: boolean },
): Promise<(StartPosition | MillraceError)[]> {
  const stored = await loadStored(session, requests, options.owner)
  const outcomes = new Array<StartPosition | MillraceError>(requests.length)
  const anchored: number[] = []
  const numbered: number[] = []
  for (const [index, request] of requests.entries()) {
    const position = stored[index]
    const replays = options.allowReplay && request.startAt.kind !== "next"
    if (position instanceof MillraceError) outcomes[index] = position
    else if (position !== undefined && !replays) outcomes[index] = fromStored(position)
    else (request.startAt.kind === "offset" ? numbered : anchored).push(index)
  }
  await Promise.all([
    locateAnchored(session, requests, anchored, outcomes),
    checkNumbered(session, requests, numbered, outcomes),
  ])
  return outcomes.map((outcome, index) => besideStored(outcome, stored[index]))
}

/** A replay goes before what is stored, and that stays stored: progress in the same history never goes back by reading. */
function besideStored(
  start: StartPosition | MillraceError,
  stored: Position | MillraceError | undefined,
): StartPosition | MillraceError {
  if (start instanceof MillraceError || stored === undefined || stored instanceof MillraceError) return start
  return stored.lineage === start.lineage ? { ...start, storedNext: stored.offset } : start
}

/**
 * Where `seek` goes: like a start, but whatever is stored does not overrule it. `next` is behind what is stored.
 * @throws what the backend fails with, for the whole or for the partition
 */
export async function findPlace(
  session: Session,
  partition: TopicPartition,
  { to, owner }: { readonly to: StartAt; readonly owner: OffsetOwner | undefined },
): Promise<StartPosition> {
  const asked = to.kind === "next" ? owner : undefined
  const [found] = await findStarts(session, [{ partition, startAt: to }], { owner: asked, allowReplay: true })
  if (found instanceof MillraceError) throw found
  return found as StartPosition
}

/**
 * Refuses a partition that the topic does not have, looking again when the topic may have got more of them meanwhile.
 * @throws InvalidError that names the range, NotFoundError
 */
export async function checkPartition(topics: TopicDirectory, place: TopicPartition): Promise<void> {
  const name = { stream: place.stream, topic: place.topic }
  let count = (await topics.describe(name)).partitions.length
  if (place.partition < count) return
  topics.forget(name)
  count = (await topics.describe(name)).partitions.length
  if (place.partition < count) return
  throw new InvalidError(
    `partition ${place.partition} of topic "${topicText(name)}" is out of range: the topic has ${count === 1 ? "1 partition (0)" : `${count} partitions (0 to ${count - 1})`}`,
    { context: { ...place } },
  )
}

async function loadStored(
  session: Session,
  requests: readonly StartRequest[],
  owner: OffsetOwner | undefined,
): Promise<(Position | undefined | MillraceError)[]> {
  if (owner === undefined) return []
  return session.offsets.load(
    owner,
    requests.map((request) => request.partition),
  )
}

async function locateAnchored(
  session: Session,
  requests: readonly StartRequest[],
  indexes: readonly number[],
  outcomes: (StartPosition | MillraceError)[],
): Promise<void> {
  if (indexes.length === 0) return
  const queries = indexes.map((index) => {
    const { partition, startAt } = requests[index] as StartRequest
    return { ...partition, at: anchorOf(startAt) }
  })
  const answers = await session.log.locate(queries)
  for (const [nth, index] of indexes.entries()) {
    const answer = answers[nth] as Position | MillraceError
    const { startAt } = requests[index] as StartRequest
    const fromMicros = startAt.kind === "timestampMicros" ? startAt.value : undefined
    outcomes[index] =
      answer instanceof MillraceError
        ? answer
        : { offset: answer.offset, lineage: answer.lineage, fromMicros, storedNext: undefined }
  }
}

/** An offset that the caller names needs the present history; whether it is in range is found out by reading. */
async function checkNumbered(
  session: Session,
  requests: readonly StartRequest[],
  indexes: readonly number[],
  outcomes: (StartPosition | MillraceError)[],
): Promise<void> {
  if (indexes.length === 0) return
  const answers = await session.log.watermarks(indexes.map((index) => (requests[index] as StartRequest).partition))
  for (const [nth, index] of indexes.entries()) {
    const answer = answers[nth] as Watermarks | MillraceError
    const { startAt } = requests[index] as StartRequest
    outcomes[index] =
      answer instanceof MillraceError
        ? answer
        : {
            offset: startAt.kind === "offset" ? startAt.value : answer.first,
            lineage: answer.lineage,
            fromMicros: undefined,
            storedNext: undefined,
          }
  }
}

function fromStored(position: Position): StartPosition {
  return { offset: position.offset, lineage: position.lineage, fromMicros: undefined, storedNext: position.offset }
}

function anchorOf(startAt: StartAt): Anchor {
  if (startAt.kind === "timestampMicros") return { kind: "timestampMicros", value: startAt.value }
  return { kind: startAt.kind === "last" ? "last" : "first" }
}
