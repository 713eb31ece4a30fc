/**
 * A cluster in memory that answers fetches by the rules of the protocol: one request at a time on a connection, long polls that end with
 * data or with their wait, and fetch sessions checked as a broker checks them (KIP-227).
 */
import { ClosedError, ConnectionError, Headers, NotFoundError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type {
  Body,
  Cluster,
  ClusterNode,
  Destination,
  NodeConnection,
  RequestOptions,
  TopicMetadata,
} from "../cluster/cluster.ts"
import { type Api, listOffsetsApi } from "../protocol/api.ts"
import type {
  FetchRequest,
  FetchResponse,
  FetchResponseAbortedTransaction,
  FetchResponsePartitionData,
  ListOffsetsRequest,
} from "../protocol/messages.generated.ts"
import { sealed } from "../records/batch-text.test-support.ts"

/** One partition with its log. */
export interface FakePartition {
  leader: number
  leaderEpoch: number
  first: bigint
  end: bigint
  readonly batches: { readonly base: bigint; readonly end: bigint; readonly bytes: Buffer }[]
  aborted: FetchResponseAbortedTransaction[]
}

interface Session {
  epoch: number
  readonly partitions: Map<
    string,
    { readonly topicId: string; readonly partition: number; offset: bigint; leaderEpoch: number }
  >
}

export class FakeCluster implements Cluster {
  readonly requestTimeoutMs = 1000
  readonly clientId = "test"
  readonly nodes: readonly ClusterNode[] = []
  readonly topicIds: Map<string, string> = new Map()
  readonly partitions: Map<string, FakePartition> = new Map()
  /** Nodes that cannot be reached. */
  readonly dead: Set<number> = new Set()
  /** Every fetch that arrived. */
  readonly fetches: { readonly node: number; readonly request: FetchRequest }[] = []
  /** Error codes that partitions answer instead of records, each once. */
  readonly faults: Map<string, number> = new Map()
  /** Nodes that do not know that they lead nothing any more: they answer as if nobody had written. */
  readonly deposed: Set<number> = new Set()
  /** Partitions that sessions have lost: a broker says nothing of them until it is told of them anew. */
  readonly forgotten: Set<string> = new Set()
  /** The error code with which the next fetch that goes on with a session is refused. */
  refuseSession = 0
  /** How long a node takes before it looks at a fetch. */
  readonly delaysMs: Map<number, number> = new Map()
  lookups = 0
  openConnections = 0
  readonly #clock: Clock
  readonly #sessions = new Map<number, Session>()
  readonly #waiting = new Set<() => void>()
  readonly #cuts = new Set<() => void>()
  readonly #scripts = new Map<string, { readonly version: number; readonly answer: (request: unknown) => unknown }>()
  #lastSession = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  addTopic(name: string, topicId: string, leaders: readonly number[]): void {
    this.topicIds.set(name, topicId)
    for (const [partition, leader] of leaders.entries()) {
      this.partitions.set(`${topicId}/${partition}`, {
        leader,
        leaderEpoch: 0,
        first: 0n,
        end: 0n,
        batches: [],
        aborted: [],
      })
    }
  }

  partition(topicId: string, partition: number): FakePartition {
    const found = this.partitions.get(`${topicId}/${partition}`)
    if (found === undefined) throw new Error(`no partition ${topicId}/${partition}`)
    return found
  }

  /** Appends one batch of texts, as a broker does: with the next offsets. `change` alters the bytes as they are stored. */
  append(topicId: string, partition: number, texts: readonly string[], change?: (bytes: Buffer) => void): void {
    const records = texts.map((text) => ({
      ...{ payload: Buffer.from(text), key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined },
    }))
    const bytes = Buffer.from(sealed(records).stamp({ producerId: -1n, epoch: -1, sequence: -1 }))
    const log = this.partition(topicId, partition)
    bytes.writeBigInt64BE(log.end, 0)
    change?.(bytes)
    const end = log.end + BigInt(texts.length)
    log.batches.push({ base: log.end, end, bytes })
    log.end = end
    this.wake()
  }

  /** Lets the long polls look again. */
  wake(): void {
    for (const look of [...this.#waiting]) look()
  }

  async topic(name: string): Promise<TopicMetadata> {
    this.lookups++
    await Promise.resolve()
    const topicId = this.topicIds.get(name)
    if (topicId === undefined) throw new NotFoundError(`no topic ${name}`)
    const partitions = []
    for (let partition = 0; this.partitions.has(`${topicId}/${partition}`); partition++) {
      const { leader, leaderEpoch } = this.partition(topicId, partition)
      partitions.push({ partition, leader, leaderEpoch })
    }
    return { name, topicId, partitions, internal: false }
  }

  async open(nodeId: number): Promise<NodeConnection> {
    await Promise.resolve()
    if (this.dead.has(nodeId)) throw new ConnectionError(`node ${nodeId} is dead`)
    this.openConnections++
    let closed = false
    let busy = false
    let cut: ((error: Error) => void) | undefined
    const connection: NodeConnection = {
      nodeId,
      get closed() {
        return closed
      },
      version: (api) => api.max,
      request: async <Q, S>(_api: Api<Q, S>, body: Body<Q>) => {
        if (closed) throw new ClosedError("closed")
        if (busy) throw new Error("a second request on a connection whose long poll is under way")
        busy = true
        try {
          const ended = new Promise<never>((_, reject) => {
            cut = reject
          })
          ended.catch(() => {})
          return (await Promise.race([this.#fetch(nodeId, body as FetchRequest), ended])) as S
        } finally {
          busy = false
        }
      },
      close: () => {
        if (!closed) this.openConnections--
        closed = true
        cut?.(new ClosedError("the connection is closed"))
      },
    }
    this.#cuts.add(() => {
      if (closed || !this.dead.has(nodeId)) return
      closed = true
      this.openConnections--
      cut?.(new ConnectionError("cut"))
    })
    return connection
  }

  /** Kills a node: its connections are cut. */
  kill(nodeId: number): void {
    this.dead.add(nodeId)
    for (const cut of this.#cuts) cut()
  }

  /** Answers requests of an API that are no fetches, in this version. */
  script<Q, S>(api: Api<Q, S>, answer: (request: Q) => S | Promise<S>, version: number = api.max): void {
    this.#scripts.set(api.name, { version, answer: answer as (request: unknown) => unknown })
  }

  async request<Q, S>(api: Api<Q, S>, body: Body<Q>, _to: Destination, options: RequestOptions = {}): Promise<S> {
    await Promise.resolve()
    const script = this.#scripts.get(api.name)
    if (script !== undefined) {
      const version = Math.min(script.version, options.maxVersion ?? script.version)
      const request = typeof body === "function" ? (body as (version: number) => Q)(version) : body
      // What cannot be said in the version is found out here.
      api.encode(request, version, { correlationId: 1, clientId: "test" })
      return (await script.answer(request)) as S
    }
    if ((api as unknown) !== listOffsetsApi) throw new Error(`no answer to ${api.name}`)
    const [topic] = (body as ListOffsetsRequest).topics
    const [part] = topic?.partitions ?? []
    if (topic === undefined || part === undefined) throw new Error("an empty request")
    const { first, end } = this.partition(this.topicIds.get(topic.name) as string, part.partitionIndex)
    const offset = part.timestamp === -2n ? first : end
    const answer = { partitionIndex: part.partitionIndex, errorCode: 0, timestamp: -1n, offset, leaderEpoch: 0 }
    return { throttleTimeMs: 0, topics: [{ name: topic.name, partitions: [answer] }] } as S
  }

  invalidate(): void {
    // Every lookup is fresh.
  }

  connectionNow(): undefined {
    return undefined
  }

  connection(): Promise<NodeConnection> {
    return Promise.reject(new ConnectionError("there is no shared connection"))
  }

  feature(): number {
    return 0
  }

  offers<Q, S>(api: Api<Q, S>, minVersion = 0): boolean {
    return (this.#scripts.get(api.name)?.version ?? api.max) >= minVersion
  }

  knownTopic(): undefined {
    return undefined
  }

  topics(): Promise<readonly TopicMetadata[]> {
    return Promise.resolve([])
  }

  invalidateController(): void {}

  invalidateCoordinator(): void {
    // There are no groups.
  }

  coordinator(): Promise<number> {
    return Promise.resolve(1)
  }

  close(): Promise<void> {
    return Promise.resolve()
  }

  async #fetch(node: number, request: FetchRequest): Promise<FetchResponse> {
    this.fetches.push({ node, request })
    if (request.isolationLevel === undefined || request.maxBytes === undefined)
      throw new Error("defaults are for brokers")
    const { sessionId = 0, sessionEpoch = -1 } = request
    const whole = { throttleTimeMs: 0, nodeEndpoints: [], responses: [] }
    if (this.refuseSession !== 0 && sessionEpoch > 0) {
      const code = this.refuseSession
      this.refuseSession = 0
      this.#sessions.delete(sessionId)
      return { ...whole, errorCode: code, sessionId: 0 }
    }
    const delayMs = this.delaysMs.get(node)
    if (delayMs !== undefined) await new Promise<void>((resolve) => void this.#clock.setTimer(delayMs, resolve))
    const session = this.#sessionOf(request)
    if (typeof session === "number") return { ...whole, errorCode: session, sessionId: 0 }
    const look = (): FetchResponse["responses"] => this.#look(node, request, session)
    let found = look()
    if (found.length === 0 && request.maxWaitMs > 0) {
      await new Promise<void>((resolve) => {
        const end = (): void => {
          this.#waiting.delete(again)
          timer.cancel()
          resolve()
        }
        const again = (): void => {
          found = look()
          if (found.length > 0) end()
        }
        const timer = this.#clock.setTimer(request.maxWaitMs, end)
        this.#waiting.add(again)
      })
    }
    return { ...whole, responses: found, errorCode: 0, sessionId: sessionEpoch < 0 ? 0 : this.#idOf(session) }
  }

  /** The session of a request with what the request changes in it, or an error code. */
  #sessionOf({ sessionId = 0, sessionEpoch = -1, topics, forgottenTopicsData = [] }: FetchRequest): Session | number {
    let session: Session = { epoch: 0, partitions: new Map() }
    if (sessionEpoch > 0) {
      const known = this.#sessions.get(sessionId)
      if (known === undefined) return 70
      if (known.epoch !== sessionEpoch) return 71
      session = known
    } else if (sessionEpoch === 0) {
      this.#sessions.delete(sessionId)
      this.#sessions.set(++this.#lastSession, session)
    }
    session.epoch++
    for (const { topicId = "", partitions = [] } of forgottenTopicsData) {
      for (const partition of partitions) {
        if (!session.partitions.delete(`${topicId}/${partition}`)) throw new Error("forgets what it never told")
      }
    }
    for (const { topicId = "", partitions } of topics) {
      for (const { partition, fetchOffset: offset, currentLeaderEpoch: leaderEpoch = -1 } of partitions) {
        session.partitions.set(`${topicId}/${partition}`, { topicId, partition, offset, leaderEpoch })
        this.forgotten.delete(`${topicId}/${partition}`)
      }
    }
    return session
  }

  #idOf(session: Session): number {
    for (const [id, known] of this.#sessions) if (known === session) return id
    return 0
  }

  /** What there is to tell now. A session's partitions without news are left out. */
  #look(node: number, request: FetchRequest, session: Session): FetchResponse["responses"] {
    const topics = new Map<string, FetchResponsePartitionData[]>()
    for (const [key, asked] of session.partitions) {
      const data = this.#partitionData(node, { key, request, ...asked })
      if (data === undefined) continue
      const list = topics.get(asked.topicId)
      if (list === undefined) topics.set(asked.topicId, [data])
      else list.push(data)
    }
    return [...topics].map(([topicId, partitions]) => ({ topic: "", topicId, partitions }))
  }

  #partitionData(
    node: number,
    asked: {
      readonly key: string
      readonly request: FetchRequest
      readonly partition: number
      readonly offset: bigint
      readonly leaderEpoch: number
    },
  ): FetchResponsePartitionData | undefined {
    const { key, request, partition, offset, leaderEpoch } = asked
    const log = this.partitions.get(key)
    const answer = (errorCode: number, more: Partial<FetchResponsePartitionData> = {}): FetchResponsePartitionData => ({
      partitionIndex: partition,
      errorCode,
      highWatermark: -1n,
      lastStableOffset: -1n,
      logStartOffset: -1n,
      divergingEpoch: { epoch: -1, endOffset: -1n },
      currentLeader: { leaderId: -1, leaderEpoch: -1 },
      snapshotId: { endOffset: -1n, epoch: -1 },
      abortedTransactions: null,
      preferredReadReplica: -1,
      records: null,
      ...more,
    })
    const fault = this.faults.get(key)
    if (fault !== undefined) {
      this.faults.delete(key)
      return answer(fault)
    }
    if (log === undefined) return answer(100)
    if (this.deposed.has(node) || this.forgotten.has(key)) return undefined
    if (log.leader !== node) return answer(6)
    if (leaderEpoch < log.leaderEpoch) return answer(74)
    if (offset < log.first || offset > log.end) return answer(1)
    const wanted = log.batches.filter(({ end }) => end > offset)
    if (wanted.length === 0) return undefined
    const taken: Buffer[] = []
    let bytes = 0
    for (const batch of wanted) {
      if (taken.length > 0 && bytes + batch.bytes.length > (request.maxBytes ?? 0)) break
      taken.push(batch.bytes)
      bytes += batch.bytes.length
    }
    const marks = { highWatermark: log.end, lastStableOffset: log.end, logStartOffset: log.first }
    const aborted = request.isolationLevel === 1 ? { abortedTransactions: log.aborted } : {}
    return answer(0, { ...marks, ...aborted, records: Buffer.concat(taken) })
  }
}
