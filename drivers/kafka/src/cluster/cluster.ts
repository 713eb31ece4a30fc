/** What the parts of the driver see of a Kafka cluster: requests by where they belong, topics by name, and connections of their own. */
import type { Api } from "../protocol/api.ts"

/** Where a request belongs. */
export type Destination =
  | { readonly kind: "any" }
  | { readonly kind: "node"; readonly id: number }
  | { readonly kind: "leader"; readonly topic: string; readonly partition: number }
  | { readonly kind: "coordinator"; readonly group: string }
  | { readonly kind: "controller" }

export interface RequestOptions {
  /** For everything: waiting for a connection, sending, the answer. Default: the `requestTimeout` of the session. */
  readonly timeoutMs?: number
  /** The newest version that the caller understands. Default: the newest of the codec. */
  readonly maxVersion?: number
  /** The oldest version that carries what the caller needs. Default: the oldest of the codec. */
  readonly minVersion?: number
  /**
   * Whether asking twice changes nothing. A cut connection then fails with a retryable ConnectionError whose outcome is `rejected`;
   * otherwise, once the request was written, with outcome `unknown`. Default false.
   */
  readonly readOnly?: boolean
}

/** A body, or how to make it for the version that the node and this driver share. */
export type Body<Q> = Q | ((version: number) => Q)

/** One connection to one node: requests are answered in order. */
export interface NodeConnection {
  readonly nodeId: number
  readonly closed: boolean
  /** The version that a request of this API would have. @throws UnsupportedError naming both ranges */
  version<Q, S>(api: Api<Q, S>, options?: Pick<RequestOptions, "maxVersion" | "minVersion">): number
  /**
   * @throws TimeoutError (unknown, or retryable when read-only), ConnectionError, UnsupportedError for the version, a `protocol`
   *   error for an answer that cannot be read; the answer's own error codes are the caller's to read
   */
  request<Q, S>(api: Api<Q, S>, body: Body<Q>, options?: RequestOptions): Promise<S>
  /** Everything pending fails with ClosedError. */
  close(): void
}

/** A node of the cluster as metadata tells it. */
export interface ClusterNode {
  readonly id: number
  readonly host: string
  readonly port: number
  readonly rack: string | undefined
}

export interface PartitionMetadata {
  readonly partition: number
  /** −1 while there is none. */
  readonly leader: number
  /** −1 where the broker is too old to tell. */
  readonly leaderEpoch: number
}

/** The id of every topic where the brokers have none: before 2.8. */
export const noTopicId = "AAAAAAAAAAAAAAAAAAAAAA"

export interface TopicMetadata {
  readonly name: string
  /** As in the protocol's codecs; `noTopicId` where the broker is too old to have any. */
  readonly topicId: string
  /** In order: entry i is partition i. */
  readonly partitions: readonly PartitionMetadata[]
  readonly internal: boolean
}

/** As the `maxAgeMs` of `Cluster.topic`: nothing that is known will do. */
export const askNow = -1

export interface Cluster {
  /**
   * Sends a request to where it belongs. Waits for a connection, for a leader and for a coordinator within the time limit; it does not
   * look at error codes in the answer: on "not me" the caller invalidates and asks again, in bounds of its own.
   * @throws NotFoundError for a leader of a topic or partition that does not exist, and what `NodeConnection.request` throws
   */
  request<Q, S>(api: Api<Q, S>, body: Body<Q>, to: Destination, options?: RequestOptions): Promise<S>
  /** The shared connection to where such requests belong, when nothing has to be waited for. */
  connectionNow(to: Destination): NodeConnection | undefined
  /** The shared connection to where such requests belong; waits as `request` does. */
  connection(to: Destination, options?: { readonly timeoutMs?: number }): Promise<NodeConnection>
  /**
   * A connection of the caller's own, for long polls. It ends with the cluster; it does not reconnect: open another. Attempts share
   * the back-off of the node.
   */
  open(nodeId: number, options?: { readonly timeoutMs?: number }): Promise<NodeConnection>
  /** The level of a finalized feature (`group.version`, `transaction.version`, `metadata.version`); 0 where there is none. */
  feature(name: string): number
  /** Whether some node that was spoken to offers the API in a version that this driver speaks. */
  offers<Q, S>(api: Api<Q, S>, minVersion?: number): boolean
  /**
   * The topic as it is known, asked for when it is not known, too old, or was invalidated. All who ask at one time share one request.
   * With an age of the caller's own (`askNow` for always) what is older will not do, even when nobody can be asked.
   * @throws NotFoundError when it does not exist; ConnectionError, TimeoutError
   */
  topic(name: string, options?: { readonly maxAgeMs?: number }): Promise<TopicMetadata>
  /** What is known without asking; `undefined` when unknown or invalidated. */
  knownTopic(name: string): TopicMetadata | undefined
  /** All topics, asked for now, internal ones too. */
  topics(): Promise<readonly TopicMetadata[]>
  /** The next `topic` asks again. Nothing is sent by this. */
  invalidate(topic: string): void
  invalidateCoordinator(group: string): void
  /** The next request for the controller asks first who it is. Nothing is sent by this. */
  invalidateController(): void
  /** The node that coordinates a group. @throws ConnectionError, TimeoutError, GroupAuthorization as PermissionError */
  coordinator(group: string, options?: { readonly timeoutMs?: number }): Promise<number>
  /** The nodes that are known now. */
  readonly nodes: readonly ClusterNode[]
  /** Default for requests, ms. */
  readonly requestTimeoutMs: number
  readonly clientId: string
  /** The second call awaits the first. Pending requests fail with ClosedError. */
  close(): Promise<void>
}
