/**
 * A Kafka cluster: requests sent to where they belong, looked for until they get there or their time is over.
 *
 * What each server is, and its way back after a loss, is `Server`; which there are, `ServerDirectory`; what is known of topics,
 * `TopicTable` and `MetadataFeed`; of groups, `Coordinators`.
 */
import { ClosedError, ConnectionError, MillraceError, TimeoutError } from "@millrace/contract"
import { errorCode, kafkaError } from "../errors.ts"
import { topicNameOf } from "../names.ts"
import { Pauses } from "../pauses.ts"
import { type Api, metadataApi } from "../protocol/api.ts"
import type { MetadataRequest, MetadataResponse } from "../protocol/messages.generated.ts"
import { noPartition, topicText } from "../topic-words.ts"
import type { WireConnection } from "../wire/connection.ts"
import type {
  Body,
  Cluster,
  ClusterNode,
  Destination,
  NodeConnection,
  RequestOptions,
  TopicMetadata,
} from "./cluster.ts"
import { Coordinators } from "./coordinators.ts"
import { MetadataFeed } from "./metadata-feed.ts"
import type { Server } from "./server.ts"
import { type DirectoryOptions, ServerDirectory } from "./server-directory.ts"
import { TopicTable } from "./topic-table.ts"

/** How long a request waits for one server before it looks again where it belongs. ms */
const waitSliceMs = 500

/** The least time between two questions for a node that the metadata does not have. ms */
const nodesGapMs = 1_000

/** The pause before a coordinator that is not there yet, or a partition without a leader, is looked up again. ms */
const lookAgainMs = 100

/** Where the metadata names no controller, any broker takes the request and hands it on. */
const noController = -1

/** Topics are not created by asking for them: the broker's setting would, where the request can say so. */
const noCreationVersion = 4

export interface ClusterOptions extends DirectoryOptions {
  /** How old metadata of a topic may be before it is asked for again, ms. */
  readonly metadataAgeMs: number
}

export class KafkaCluster implements Cluster {
  readonly #options: ClusterOptions
  readonly #servers: ServerDirectory
  readonly #table: TopicTable
  readonly #feed: MetadataFeed
  readonly #coordinators: Coordinators
  readonly #pauses: Pauses
  #askingNodes: Promise<unknown> | undefined
  #nodesAskedAtMs = Number.NEGATIVE_INFINITY
  #closed = false

  constructor(options: ClusterOptions) {
    const { clock, requestTimeoutMs, metadataAgeMs } = options
    this.#options = options
    this.#servers = new ServerDirectory(options)
    this.#pauses = new Pauses(clock)
    this.#table = new TopicTable(metadataAgeMs)
    this.#feed = new MetadataFeed({
      table: this.#table,
      clock,
      ask: (names) => this.#metadata(named(names), requestTimeoutMs),
    })
    this.#coordinators = new Coordinators({
      cluster: this,
      clock,
      pause: () => this.#pauses.wait(lookAgainMs),
      isClosed: () => this.#closed,
    })
  }

  get nodes(): readonly ClusterNode[] {
    return this.#servers.nodes
  }

  get requestTimeoutMs(): number {
    return this.#options.requestTimeoutMs
  }

  get clientId(): string {
    return this.#options.clientId
  }

  /**
   * The first connection: each address is tried once, then the cluster's nodes are asked for.
   * @throws what the only address failed with; ConnectionError naming every address when there are several
   */
  async connect(timeoutMs: number): Promise<void> {
    const deadlineMs = this.#nowMs() + timeoutMs
    const failures: MillraceError[] = []
    for (const server of this.#servers.first()) {
      try {
        await server.connection(Math.max(1, deadlineMs - this.#nowMs()), { patient: false })
        this.#servers.prefer(server)
        await this.#metadata([], Math.max(1, deadlineMs - this.#nowMs()))
        return
      } catch (error) {
        if (!(error instanceof MillraceError)) throw error
        failures.push(error)
      }
    }
    throw unreached(failures)
  }

  request<Q, S>(api: Api<Q, S>, body: Body<Q>, to: Destination, options: RequestOptions = {}): Promise<S> {
    const ready = this.connectionNow(to)
    if (ready !== undefined) return ready.request(api, body, options)
    return this.#requestLater(api, { body, to, options })
  }

  /** The path of nearly every request. */
  connectionNow(to: Destination): WireConnection | undefined {
    switch (to.kind) {
      case "any":
        return this.#servers.preferred?.shared
      case "node":
        return this.#servers.byId(to.id)?.shared
      case "controller":
        return this.#servers.controllerId === undefined
          ? undefined
          : this.#servers.byId(this.#servers.controllerId)?.shared
      case "coordinator": {
        const id = this.#coordinators.known(to.group)
        return id === undefined ? undefined : this.#servers.byId(id)?.shared
      }
      case "leader": {
        const leader = this.#table.fresh(to.topic, this.#nowMs())?.partitions[to.partition]?.leader
        return leader === undefined ? undefined : this.#servers.byId(leader)?.shared
      }
    }
  }

  connection(to: Destination, options: { readonly timeoutMs?: number } = {}): Promise<WireConnection> {
    const ready = this.connectionNow(to)
    if (ready !== undefined) return Promise.resolve(ready)
    return this.#connectionTo(to, this.#deadline(options.timeoutMs))
  }

  async open(nodeId: number, options: { readonly timeoutMs?: number } = {}): Promise<NodeConnection> {
    const deadlineMs = this.#deadline(options.timeoutMs)
    await this.#connectionTo({ kind: "node", id: nodeId }, deadlineMs)
    const server = this.#servers.byId(nodeId)
    if (server === undefined) throw noNode(nodeId)
    return server.openOwn(Math.max(1, deadlineMs - this.#nowMs()))
  }

  feature(name: string): number {
    return this.#servers.versions?.feature(name) ?? 0
  }

  offers<Q, S>(api: Api<Q, S>, minVersion = 0): boolean {
    return this.#servers.versions?.offers(api, { minVersion }) ?? false
  }

  async topic(name: string, options: { readonly maxAgeMs?: number } = {}): Promise<TopicMetadata> {
    const fresh = this.#table.fresh(name, this.#nowMs(), options.maxAgeMs)
    if (fresh !== undefined) return fresh
    const old = options.maxAgeMs === undefined ? this.#table.usable(name) : undefined
    try {
      return await this.#feed.topic(name)
    } catch (error) {
      if (old !== undefined && error instanceof MillraceError && error.retryable) return old
      throw error
    }
  }

  knownTopic(name: string): TopicMetadata | undefined {
    return this.#table.usable(name)
  }

  async topics(): Promise<readonly TopicMetadata[]> {
    const answer = await this.#metadata(null, this.requestTimeoutMs)
    const topics: TopicMetadata[] = []
    for (const topic of answer.topics) {
      const { name, errorCode: code } = topic
      if (name === null || (code !== errorCode.none && code !== errorCode.leaderNotAvailable)) continue
      topics.push(this.#table.accept({ ...topic, name }, this.#nowMs()).topic)
    }
    const there = new Set(topics.map(({ name }) => name))
    for (const name of this.#table.names()) if (!there.has(name)) this.#table.forget(name)
    return topics
  }

  invalidate(topic: string): void {
    this.#table.invalidate(topic)
  }

  invalidateCoordinator(group: string): void {
    this.#coordinators.forget(group)
  }

  invalidateController(): void {
    this.#servers.doubtController()
  }

  coordinator(group: string, options: { readonly timeoutMs?: number } = {}): Promise<number> {
    return this.#coordinators.find(group, options.timeoutMs ?? this.requestTimeoutMs)
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#feed.close()
    this.#servers.close()
    this.#pauses.close()
  }

  async #requestLater<Q, S>(
    api: Api<Q, S>,
    request: { readonly body: Body<Q>; readonly to: Destination; readonly options: RequestOptions },
  ): Promise<S> {
    const deadlineMs = this.#deadline(request.options.timeoutMs)
    const connection = await this.#connectionTo(request.to, deadlineMs)
    const timeoutMs = Math.max(1, deadlineMs - this.#nowMs())
    return connection.request(api, request.body, { ...request.options, timeoutMs })
  }

  /** Looks for where a request belongs until there is a connection to it, or the time is over. */
  async #connectionTo(to: Destination, deadlineMs: number): Promise<WireConnection> {
    let last: MillraceError | undefined
    for (;;) {
      if (this.#closed) throw closedError()
      const leftMs = deadlineMs - this.#nowMs()
      if (leftMs <= 0) throw last ?? new TimeoutError("no Kafka broker in time", { outcome: "rejected" })
      try {
        const server = await this.#inTime(this.#whereTo(to, deadlineMs), leftMs)
        return await server.connection(Math.min(leftMs, waitSliceMs), { patient: true })
      } catch (error) {
        if (!(error instanceof MillraceError) || !error.retryable) throw error
        last = error
        this.#lookElsewhere(to)
        const tookMs = leftMs - (deadlineMs - this.#nowMs())
        if (tookMs < lookAgainMs) await this.#pauses.wait(lookAgainMs - tookMs)
      }
    }
  }

  async #whereTo(to: Destination, deadlineMs: number): Promise<Server> {
    switch (to.kind) {
      case "any":
        return this.#servers.any()
      case "controller": {
        if (this.#servers.controllerId === undefined) await this.#metadata([], this.requestTimeoutMs)
        const controller = this.#servers.byId(this.#servers.controllerId ?? noController)
        return controller === undefined || controller.isDown ? this.#servers.any() : controller
      }
      case "node":
        return this.#servers.byId(to.id) ?? this.#nodeAskedFor(to.id)
      case "coordinator": {
        const id = await this.#coordinators.find(to.group, Math.max(1, deadlineMs - this.#nowMs()))
        return this.#servers.byId(id) ?? this.#nodeAskedFor(id)
      }
      case "leader":
        return this.#leader(to.topic, to.partition)
    }
  }

  async #leader(name: string, partition: number): Promise<Server> {
    const topic = await this.topic(name)
    const entry = topic.partitions[partition]
    if (entry === undefined) throw noPartition(name, { partition, count: topic.partitions.length })
    if (entry.leader < 0) {
      const message = `partition ${partition} of ${topicText(name)} has no leader at the moment`
      throw new MillraceError("not-leader", message, { context: { ...topicNameOf(name), partition } })
    }
    return this.#servers.byId(entry.leader) ?? this.#nodeAskedFor(entry.leader)
  }

  /** A node that nobody has told of yet: the metadata is asked for again, by one for all, and not too often. */
  async #nodeAskedFor(id: number): Promise<Server> {
    if (this.#askingNodes === undefined) {
      const nowMs = this.#nowMs()
      if (nowMs - this.#nodesAskedAtMs < nodesGapMs) throw noNode(id)
      this.#nodesAskedAtMs = nowMs
      const done = (): void => {
        this.#askingNodes = undefined
      }
      this.#askingNodes = this.#metadata([], this.requestTimeoutMs).finally(done)
    }
    await this.#askingNodes
    const server = this.#servers.byId(id)
    if (server === undefined) throw noNode(id)
    return server
  }

  /** What is known did not lead to a broker: it is asked for again before the next try. */
  #lookElsewhere(to: Destination): void {
    if (to.kind === "leader") this.invalidate(to.topic)
    if (to.kind === "coordinator") this.invalidateCoordinator(to.group)
    if (to.kind === "any" || to.kind === "controller") this.#servers.doubtPreferred()
  }

  /** Asks any broker, and takes note of the nodes. `null`: about all topics. */
  async #metadata(topics: MetadataRequest["topics"], timeoutMs: number): Promise<MetadataResponse> {
    const body = (version: number): MetadataRequest =>
      version >= noCreationVersion ? { topics, allowAutoTopicCreation: false } : { topics }
    const answer = await this.request(metadataApi, body, { kind: "any" }, { timeoutMs, readOnly: true })
    if (answer.errorCode === errorCode.rebootstrapRequired) this.#servers.beginAgain()
    if (answer.errorCode !== errorCode.none) {
      throw kafkaError(answer.errorCode, { what: "asking for the cluster's metadata", readOnly: true })
    }
    this.#servers.accept(answer)
    return answer
  }

  /** What was asked for may take longer than this request has: others wait for it too. */
  #inTime<T>(asked: Promise<T>, leftMs: number): Promise<T> {
    return new Promise((resolve, reject) => {
      const late = (): void => reject(new ConnectionError("Kafka did not tell in time where the request belongs"))
      const timer = this.#options.clock.setTimer(leftMs, late)
      asked.then(resolve, reject).finally(() => timer.cancel())
    })
  }

  #deadline(timeoutMs: number | undefined): number {
    return this.#nowMs() + (timeoutMs ?? this.requestTimeoutMs)
  }

  #nowMs(): number {
    return this.#options.clock.monotonicMs()
  }
}

function named(names: readonly string[]): { readonly name: string }[] {
  return names.map((name) => ({ name }))
}

/** What is certain for good counts more than what may pass; one address fails with its own words. */
function unreached(failures: readonly MillraceError[]): MillraceError {
  const decided = failures.find((error) => !error.retryable)
  if (decided !== undefined) return decided
  const [only] = failures
  if (only !== undefined && failures.length === 1) return only
  const words = failures.map((error) => error.message).join("; ")
  return new ConnectionError(`no Kafka broker could be reached: ${words}`, { cause: only })
}

function noNode(id: number): ConnectionError {
  return new ConnectionError(`Kafka broker ${id} is not part of the cluster at the moment`)
}

function closedError(): ClosedError {
  return new ClosedError("the session is closed")
}
