/**
 * Batches on their way to the leaders of their partitions. Those of one turn for one broker share a Produce request, with at most one
 * batch of a partition in each; those of one partition leave in the order of the calls, also while a leader has to be looked up.
 */
import { type AppendOptions, type AppendResult, ClosedError, MillraceError, NotFoundError } from "@millrace/contract"
import type { TopicFact } from "../catalog/topic-facts.ts"
import type { Cluster, NodeConnection, TopicMetadata } from "../cluster/cluster.ts"
import { errorCode, kafkaError, meansNoTopic, meansOtherLeader } from "../errors.ts"
import { kafkaTopic } from "../names.ts"
import { type Api, produceApi } from "../protocol/api.ts"
import type {
  ProduceRequest,
  ProduceRequestTopicProduceData,
  ProduceResponse,
  ProduceResponsePartitionProduceResponse,
} from "../protocol/messages.generated.ts"
import type { KafkaSealedBatch } from "../records/sealed-batch.ts"
import { noPartition } from "../topic-words.ts"
import { appending, type BatchInQuestion, contextOf, otherTopic, produceOutcome } from "./produce-outcome.ts"

/** Record batches in one request: far below what brokers take (`socket.request.max.bytes`, 100 MiB). */
const requestBytes = 16 << 20

/** The share of a request's time-out that the broker may wait for its replicas. */
const brokerShare = 0.9

/** All replicas that are in sync have the records before they are confirmed. */
const acksAll = -1

/** One batch from the call to its outcome. */
interface Append {
  readonly batch: KafkaSealedBatch
  /** The batch as it is sent, with the producer's stamp on it. */
  readonly records: Uint8Array
  readonly kafka: string
  readonly resolve: (result: AppendResult) => void
  readonly reject: (error: MillraceError) => void
}

export interface AppenderParts {
  readonly cluster: Cluster
  /** What the configuration of a topic says, where it is known. */
  readonly fact: (kafka: string) => TopicFact | undefined
}

export class Appender {
  readonly #cluster: Cluster
  readonly #fact: (kafka: string) => TopicFact | undefined
  /** Kafka's names by topic descriptions: a description makes many batches. */
  readonly #names = new WeakMap<object, string>()
  #turn: Append[] = []
  /** Batches that wait for a leader, by partition. What comes behind them waits too. */
  readonly #parked = new Map<string, Append[]>()
  #closed = false

  constructor(parts: AppenderParts) {
    this.#cluster = parts.cluster
    this.#fact = parts.fact
  }

  append(batch: KafkaSealedBatch, options: AppendOptions): Promise<AppendResult> {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw closedError()
      const kafka = this.#nameOf(batch)
      // Stamped at once: its owner may release it while it waits, and only the bytes are kept for it then.
      const records = batch.stamp(options.identity)
      batch.pin()
      if (this.#turn.length === 0) queueMicrotask(() => this.#dispatch())
      this.#turn.push({ batch, records, kafka, resolve, reject })
    })
  }

  /** What was not sent fails; what was sent settles when its connection ends. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    const waiting = [this.#turn, ...this.#parked.values()].flat()
    this.#turn = []
    this.#parked.clear()
    for (const append of waiting) fail(append, closedError())
  }

  #nameOf({ topic }: KafkaSealedBatch): string {
    let name = this.#names.get(topic)
    if (name === undefined) {
      name = kafkaTopic(topic)
      this.#names.set(topic, name)
    }
    return name
  }

  #dispatch(): void {
    const turn = this.#turn
    this.#turn = []
    const ready = new Map<NodeConnection, Append[]>()
    for (const append of turn) {
      const parked = this.#parked.get(placeOf(append))
      if (parked !== undefined) {
        parked.push(append)
        continue
      }
      const connection = this.#leaderOf(append)
      if (connection === undefined) this.#park(append)
      else addTo(ready, connection, append)
    }
    for (const [connection, appends] of ready) this.#send(connection, appends)
  }

  /** The connection to the leader, if it is known and up. */
  #leaderOf({ kafka, batch }: Append): NodeConnection | undefined {
    return this.#cluster.connectionNow({ kind: "leader", topic: kafka, partition: batch.partition })
  }

  #park(append: Append): void {
    const place = placeOf(append)
    this.#parked.set(place, [append])
    const to = { kind: "leader", topic: append.kafka, partition: append.batch.partition } as const
    this.#cluster.connection(to).then(
      (connection) => this.#unpark(place, connection),
      (error: unknown) => {
        for (const waiting of this.#takeParked(place)) fail(waiting, asFailure(error, waiting))
      },
    )
  }

  #unpark(place: string, connection: NodeConnection): void {
    this.#send(connection, this.#takeParked(place))
  }

  #takeParked(place: string): readonly Append[] {
    const parked = this.#parked.get(place) ?? []
    this.#parked.delete(place)
    return parked
  }

  /** In as few requests as the rules allow: one batch of a partition in each, and not too many bytes. */
  #send(connection: NodeConnection, appends: readonly Append[]): void {
    let request = new Map<string, Append>()
    let bytes = 0
    for (const append of appends) {
      const place = placeOf(append)
      if (this.#refuseOther(append)) continue
      if (request.has(place) || (bytes > 0 && bytes + append.batch.bytes > requestBytes)) {
        this.#request(connection, request)
        request = new Map()
        bytes = 0
      }
      request.set(place, append)
      bytes += append.batch.bytes
    }
    if (request.size > 0) this.#request(connection, request)
  }

  /** Refuses a batch that was made for an older topic of the same name: brokers that know no topic ids would take it. */
  #refuseOther(append: Append): boolean {
    const known = this.#cluster.knownTopic(append.kafka)
    if (known === undefined || known.topicId === append.batch.topic.lineage) return false
    fail(append, recreated(this.#question(append)))
    return true
  }

  #request(connection: NodeConnection, request: ReadonlyMap<string, Append>): void {
    const timeoutMs = this.#cluster.requestTimeoutMs
    const sent = connection.request(produceApi as Api<ProduceRequest, ProduceResponse>, {
      acks: acksAll,
      timeoutMs: Math.floor(timeoutMs * brokerShare),
      topicData: topicsOf(request.values()),
    })
    sent.then(
      (answer) => this.#answered(request, answer),
      (error: unknown) => {
        for (const append of request.values()) fail(append, asFailure(error, append))
      },
    )
  }

  #answered(request: ReadonlyMap<string, Append>, answer: ProduceResponse): void {
    const open = new Map(request)
    for (const topic of answer.responses) {
      for (const told of topic.partitionResponses) {
        const append = findAppend(open, topic, told.index)
        if (append === undefined) continue
        open.delete(placeOf(append))
        this.#settle(append, told)
      }
    }
    for (const append of open.values()) {
      const message = `${appending(this.#question(append))} has an unknown outcome: Kafka answered without a word of it`
      fail(append, new MillraceError("protocol", message, { context: contextOf(this.#question(append)) }))
    }
  }

  #settle(append: Append, told: ProduceResponsePartitionProduceResponse): void {
    const { errorCode: code } = told
    if (code !== errorCode.none && (meansOtherLeader(code) || meansNoTopic(code))) {
      this.#cluster.invalidate(append.kafka)
      if (meansNoTopic(code)) {
        this.#lookUp(append, code).then(
          (error) => fail(append, error),
          (error: unknown) => fail(append, asFailure(error, append)),
        )
        return
      }
    }
    const outcome = produceOutcome(told, this.#question(append))
    if (outcome instanceof MillraceError) {
      fail(append, outcome)
      return
    }
    append.batch.unpin()
    append.resolve(outcome)
  }

  /** The leader says that there is no such topic: either it is gone, or that broker does not know of it yet. */
  async #lookUp(append: Append, code: number): Promise<MillraceError> {
    const question = this.#question(append)
    let topic: TopicMetadata
    try {
      topic = await this.#cluster.topic(append.kafka)
    } catch (error) {
      if (error instanceof NotFoundError) return otherTopic(question, "the topic does not exist any more")
      throw error
    }
    if (topic.topicId !== append.batch.topic.lineage) return recreated(question)
    const count = topic.partitions.length
    if (question.partition >= count) return noPartition(append.kafka, { partition: question.partition, count })
    const behind = kafkaError(code, { what: appending(question), context: contextOf(question) })
    return new MillraceError("not-leader", `${behind.message}; the cluster has it: this broker is behind`, {
      context: behind.context,
    })
  }

  #question({ batch, kafka }: Append): BatchInQuestion {
    const { topic, partition, count, bytes } = batch
    return { topic, partition, count, bytes, fact: this.#fact(kafka) }
  }
}

function placeOf({ kafka, batch }: Append): string {
  return `${batch.partition}:${batch.topic.lineage}:${kafka}`
}

function addTo(groups: Map<NodeConnection, Append[]>, connection: NodeConnection, append: Append): void {
  const group = groups.get(connection)
  if (group === undefined) groups.set(connection, [append])
  else group.push(append)
}

function topicsOf(appends: Iterable<Append>): ProduceRequestTopicProduceData[] {
  const byTopic = new Map<
    string,
    { name: string; topicId: string; partitionData: { index: number; records: Uint8Array }[] }
  >()
  for (const { batch, kafka, records } of appends) {
    const topicId = batch.topic.lineage
    const key = `${topicId}:${kafka}`
    let topic = byTopic.get(key)
    if (topic === undefined) {
      topic = { name: kafka, topicId, partitionData: [] }
      byTopic.set(key, topic)
    }
    topic.partitionData.push({ index: batch.partition, records })
  }
  return [...byTopic.values()]
}

/** From version 13 on the answer names topics by id, before that by name. */
function findAppend(
  open: ReadonlyMap<string, Append>,
  topic: { readonly name: string; readonly topicId: string },
  index: number,
): Append | undefined {
  for (const append of open.values()) {
    const { batch, kafka } = append
    if (
      batch.partition === index &&
      (topic.name === "" ? topic.topicId === batch.topic.lineage : topic.name === kafka)
    ) {
      return append
    }
  }
  return undefined
}

function fail(append: Append, error: MillraceError): void {
  append.batch.unpin()
  append.reject(error)
}

function recreated(question: BatchInQuestion): MillraceError {
  return otherTopic(question, "the batch was made for a topic of the same name that was deleted since")
}

/** A failure of the whole request, told of one of its batches; kind and outcome stay. */
function asFailure(error: unknown, append: Append): MillraceError {
  const { batch } = append
  const about = { topic: batch.topic, partition: batch.partition, count: batch.count }
  const cause = error instanceof MillraceError ? error : new MillraceError("protocol", String(error), { cause: error })
  const { kind, retryable, outcome } = cause
  const context = { ...cause.context, ...contextOf(about) }
  const failure = new MillraceError(kind, `${appending(about)} failed: ${cause.message}`, {
    retryable,
    outcome,
    context,
    cause,
  })
  failure.name = cause.name
  return failure
}

function closedError(): ClosedError {
  return new ClosedError("the session is closed")
}
