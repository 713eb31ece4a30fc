/** What the controller does to topics: create, delete, add partitions, change a setting. */
import { AlreadyExistsError, MillraceError, type TopicName } from "@millrace/contract"
import { type Cluster, noTopicId } from "../cluster/cluster.ts"
import { errorCode, kafkaError, meansNoTopic } from "../errors.ts"
import { topicNameOf } from "../names.ts"
import type { Pauses } from "../pauses.ts"
import { createPartitionsApi, createTopicsApi, deleteTopicsApi, incrementalAlterConfigsApi } from "../protocol/api.ts"
import { noTopic, topicText } from "../topic-words.ts"

/** How often one call finds the controller again, and the pause in between, ms. */
const mostTries = 5
const pauseMs = 100

/** Kafka takes −1 for "as the cluster has it" from here on (KIP-464). */
const defaultFactorVersion = 4
const clusterFactor = -1

/** DeleteTopics takes ids from here on (KIP-516). */
const idVersion = 6

/** Of topics in IncrementalAlterConfigs, and to set a value (KIP-339). */
const topicResource = 2
const setOperation = 0

export interface AdminParts {
  readonly cluster: Cluster
  readonly pauses: Pauses
}

/** One part of an answer, whatever the request. */
interface Told {
  readonly errorCode: number
  readonly errorMessage: string | null
}

/** @returns the topic's id, where the broker tells it (2.8). @throws AlreadyExistsError and what `kafkaError` makes */
export async function createTopic(
  parts: AdminParts,
  name: TopicName,
  topic: {
    readonly kafka: string
    readonly partitions: number
    readonly replicationFactor: number | undefined
    readonly config: ReadonlyMap<string, string>
  },
): Promise<string | undefined> {
  const { kafka, partitions, replicationFactor } = topic
  const configs = [...topic.config].map(([key, value]) => ({ name: key, value }))
  const body = {
    topics: [
      {
        name: kafka,
        numPartitions: partitions,
        replicationFactor: replicationFactor ?? clusterFactor,
        assignments: [],
        configs,
      },
    ],
    timeoutMs: parts.cluster.requestTimeoutMs,
    validateOnly: false,
  }
  const minVersion = replicationFactor === undefined ? { minVersion: defaultFactorVersion } : {}
  const told = await byController(parts, async () => {
    const answer = await parts.cluster.request(createTopicsApi, body, { kind: "controller" }, minVersion)
    return answer.topics[0]
  })
  if (told.errorCode === errorCode.topicAlreadyExists) {
    throw new AlreadyExistsError(`${topicText(kafka)} exists already`, {
      context: { stream: name.stream, topic: name.topic },
    })
  }
  check(told, kafka, "creating")
  return told.topicId
}

/** Deletes the topic with this id; by its name where the cluster knows no ids. @throws NotFoundError */
export async function deleteTopic(
  parts: AdminParts,
  { kafka, topicId }: { readonly kafka: string; readonly topicId: string },
): Promise<void> {
  const timeoutMs = parts.cluster.requestTimeoutMs
  const told = await byController(parts, async () => {
    const body = (version: number): object =>
      version >= idVersion ? { topics: [{ name: null, topicId }], timeoutMs } : { topicNames: [kafka], timeoutMs }
    const bounds = topicId === noTopicId ? { maxVersion: idVersion - 1 } : {}
    const answer = await parts.cluster.request(deleteTopicsApi, body as never, { kind: "controller" }, bounds)
    return answer.responses[0]
  })
  check(told, kafka, "deleting")
}

/** Raises the number of partitions to `count`. @throws NotFoundError, InvalidError */
export async function createPartitions(parts: AdminParts, kafka: string, count: number): Promise<void> {
  const body = {
    topics: [{ name: kafka, count, assignments: null }],
    timeoutMs: parts.cluster.requestTimeoutMs,
    validateOnly: false,
  }
  const told = await byController(parts, async () => {
    const answer = await parts.cluster.request(createPartitionsApi, body, { kind: "controller" })
    return answer.results[0]
  })
  check(told, kafka, "adding partitions to")
}

/** Sets one value of a topic's configuration, and leaves the others. */
export async function setConfig(
  parts: AdminParts,
  kafka: string,
  value: { readonly name: string; readonly value: string },
): Promise<void> {
  const configs = [{ ...value, configOperation: setOperation }]
  const body = { resources: [{ resourceType: topicResource, resourceName: kafka, configs }], validateOnly: false }
  const told = await byController(parts, async () => {
    const answer = await parts.cluster.request(incrementalAlterConfigsApi, body, { kind: "controller" })
    return answer.responses[0]
  })
  check(told, kafka, `setting ${value.name} of`)
}

/** Asks again, a few times, when the controller has moved. Nothing was done then. */
async function byController<T extends Told>(parts: AdminParts, ask: () => Promise<T | undefined>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const told = await ask()
    if (told === undefined) {
      throw new MillraceError("protocol", "Kafka answered a request to the controller without a word of what was asked")
    }
    if (told.errorCode !== errorCode.notController || attempt >= mostTries) return told
    parts.cluster.invalidateController()
    await parts.pauses.wait(pauseMs)
  }
}

function check(told: Told, kafka: string, doing: string): void {
  if (told.errorCode === errorCode.none) return
  if (meansNoTopic(told.errorCode)) throw noTopic(kafka)
  throw kafkaError(told.errorCode, {
    what: `${doing} ${topicText(kafka)}`,
    context: { ...topicNameOf(kafka) },
    detail: told.errorMessage,
  })
}
