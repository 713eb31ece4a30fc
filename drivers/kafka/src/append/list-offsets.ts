/** Questions for offsets (ListOffsets), grouped by leader, each with its own outcome. */
import { MillraceError } from "@millrace/contract"
import type { Cluster, TopicMetadata } from "../cluster/cluster.ts"
import { errorCode, kafkaError, meansNoTopic, meansOtherLeader } from "../errors.ts"
import { topicNameOf } from "../names.ts"
import type { Pauses } from "../pauses.ts"
import { listOffsetsApi } from "../protocol/api.ts"
import type { ListOffsetsResponse } from "../protocol/messages.generated.ts"
import { noPartition, noTopic, topicText } from "../topic-words.ts"

/** The times that mean something else: the end, and the first offset that is there. */
export const latest: bigint = -1n
export const earliest: bigint = -2n

/** How often one call finds the leader again before it fails, and the pause in between, ms. */
const mostTries = 5
const pauseMs = 100

/** The age of metadata that is good enough to tell a recreated topic from the one before, ms. */
const metadataAgeMs = 1_000

export interface OffsetQuestion {
  readonly kafka: string
  readonly partition: number
  /** Milliseconds, `latest` or `earliest`. */
  readonly time: bigint
}

/** `offset` is −1 where no record is at or behind the time. */
export interface OffsetAnswer {
  readonly offset: bigint
  readonly topicId: string
}

interface Open {
  readonly question: OffsetQuestion
  readonly index: number
}

/** One answer a question, in order. Leaders that moved are found again, a few times. */
export async function listOffsets(
  parts: { readonly cluster: Cluster; readonly pauses: Pauses },
  questions: readonly OffsetQuestion[],
): Promise<(OffsetAnswer | MillraceError)[]> {
  const answers = new Array<OffsetAnswer | MillraceError | undefined>(questions.length)
  let open: readonly Open[] = questions.map((question, index) => ({ question, index }))
  for (let attempt = 1; open.length > 0; attempt++) {
    const rounds = await Promise.all(
      [...(await byLeader(parts.cluster, open, answers))].map((group) => ask(parts.cluster, group)),
    )
    const again: Open[] = []
    for (const { entry, answer, retry } of rounds.flat()) {
      answers[entry.index] = answer
      if (retry && attempt < mostTries) again.push(entry)
    }
    for (const { question } of again) parts.cluster.invalidate(question.kafka)
    open = again
    if (open.length > 0) await parts.pauses.wait(pauseMs)
  }
  return questions.map((question, index) => answers[index] ?? unanswered(question))
}

interface Group {
  readonly leader: number
  readonly entries: { readonly entry: Open; readonly topic: TopicMetadata }[]
}

interface Outcome {
  readonly entry: Open
  readonly answer: OffsetAnswer | MillraceError
  readonly retry: boolean
}

/** Requests to be: no partition twice in one. What cannot be asked is answered at once. */
async function byLeader(
  cluster: Cluster,
  open: readonly Open[],
  answers: (OffsetAnswer | MillraceError | undefined)[],
): Promise<Group[]> {
  const names = [...new Set(open.map(({ question }) => question.kafka))]
  const looked = await Promise.all(
    names.map((name) => cluster.topic(name, { maxAgeMs: metadataAgeMs }).catch(asMillrace)),
  )
  const topics = new Map(names.map((name, index) => [name, looked[index] as TopicMetadata | MillraceError]))
  const groups: (Group & { readonly taken: Set<string> })[] = []
  for (const entry of open) {
    const { kafka, partition } = entry.question
    const topic = topics.get(kafka) as TopicMetadata | MillraceError
    if (topic instanceof MillraceError) {
      answers[entry.index] = topic
      continue
    }
    const place = topic.partitions[partition]
    if (place === undefined) {
      answers[entry.index] = noPartition(kafka, { partition, count: topic.partitions.length })
      continue
    }
    const key = `${partition}:${kafka}`
    let group = groups.find(({ leader, taken }) => leader === place.leader && !taken.has(key))
    if (group === undefined) {
      group = { leader: place.leader, entries: [], taken: new Set() }
      groups.push(group)
    }
    group.taken.add(key)
    group.entries.push({ entry, topic })
  }
  return groups
}

async function ask(cluster: Cluster, group: Group): Promise<Outcome[]> {
  const byTopic = new Map<string, { partitionIndex: number; timestamp: bigint }[]>()
  for (const { entry } of group.entries) {
    const { kafka, partition, time } = entry.question
    const list = byTopic.get(kafka)
    const asked = { partitionIndex: partition, timestamp: time }
    if (list === undefined) byTopic.set(kafka, [asked])
    else list.push(asked)
  }
  const topics = [...byTopic].map(([name, partitions]) => ({ name, partitions }))
  const [first] = group.entries
  const { kafka, partition } = (first as Group["entries"][number]).entry.question
  let answer: ListOffsetsResponse
  try {
    // By a partition, not by the node's number: when the leader is gone meanwhile, its successor is found.
    const to = { kind: "leader", topic: kafka, partition } as const
    answer = await cluster.request(listOffsetsApi, { replicaId: -1, isolationLevel: 0, topics }, to, { readOnly: true })
  } catch (error) {
    const failure = asMillrace(error)
    return group.entries.map(({ entry }) => ({ entry, answer: failure, retry: false }))
  }
  return group.entries.map(({ entry, topic }) => read(answer, entry, topic))
}

function read(answer: ListOffsetsResponse, entry: Open, topic: TopicMetadata): Outcome {
  const { kafka, partition } = entry.question
  const told = answer.topics
    .find(({ name }) => name === kafka)
    ?.partitions.find(({ partitionIndex }) => partitionIndex === partition)
  if (told === undefined) return { entry, answer: unanswered(entry.question), retry: false }
  const { errorCode: code, offset } = told
  if (code === errorCode.none) return { entry, answer: { offset, topicId: topic.topicId }, retry: false }
  const context = { ...topicNameOf(kafka), partition }
  const what = `looking up an offset of partition ${partition} of ${topicText(kafka)}`
  if (meansNoTopic(code)) return { entry, answer: noTopic(kafka), retry: true }
  return { entry, answer: kafkaError(code, { what, context, readOnly: true }), retry: meansOtherLeader(code) }
}

function unanswered({ kafka, partition }: OffsetQuestion): MillraceError {
  const message = `Kafka told nothing of partition ${partition} of ${topicText(kafka)}`
  return new MillraceError("protocol", message, { outcome: "rejected", context: { ...topicNameOf(kafka), partition } })
}

function asMillrace(error: unknown): MillraceError {
  return error instanceof MillraceError ? error : new MillraceError("protocol", String(error), { cause: error })
}
