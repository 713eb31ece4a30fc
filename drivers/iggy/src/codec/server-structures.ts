/** What the server tells of itself, its cluster and its clients (iggy-wire.md: Commands). */
import { HeaderValue, headerKindCodes } from "@millrace/contract"
import { byVersion, type Codec, f32, list32, name, struct, text32, u8, u16, u32, u64, word } from "../wire/codec.ts"
import { withItems } from "./catalog-structures.ts"

export interface Client {
  /** The server's number of the connection, not the id that the client chose. */
  readonly id: number
  /** 2^32 − 1: not logged in. */
  readonly userId: number
  readonly transport: "tcp" | "quic" | "webSocket"
  readonly address: string
  readonly groupsCount: number
}

export interface ClientGroup {
  readonly streamId: number
  readonly topicId: number
  readonly groupId: number
}

export interface ClientDetails extends Client {
  readonly groups: readonly ClientGroup[]
}

export const client: Codec<Client> = struct<Client>({
  id: u32,
  userId: u32,
  transport: word({ tcp: 1, quic: 2, webSocket: 4 }, "a transport"),
  address: text32,
  groupsCount: u32,
})

export const clientDetails: Codec<ClientDetails> = withItems<Client, ClientGroup, "groups">(
  client,
  struct<ClientGroup>({ streamId: u32, topicId: u32, groupId: u32 }),
  { key: "groups", count: (value) => value.groupsCount, leastBytes: 12 },
)

export interface ClusterNode {
  /** 0 on wire 0.11, which does not tell. */
  readonly replicaId: number
  readonly name: string
  readonly ip: string
  /** A port is 0 where the transport is off. */
  readonly tcpPort: number
  readonly quicPort: number
  readonly httpPort: number
  readonly webSocketPort: number
  readonly role: "leader" | "follower"
  readonly status: "healthy" | "starting" | "stopping" | "unreachable" | "maintenance"
}

export interface Cluster {
  readonly name: string
  readonly nodes: readonly ClusterNode[]
}

const clusterNode: Codec<ClusterNode> = struct<ClusterNode>({
  replicaId: byVersion<number>({ "0.11": { write: () => undefined, read: () => 0 }, "0.12": u8 }),
  name: text32,
  ip: text32,
  tcpPort: u16,
  quicPort: u16,
  httpPort: u16,
  webSocketPort: u16,
  role: word({ leader: 0, follower: 1 }, "the role of a node"),
  status: word({ healthy: 0, starting: 1, stopping: 2, unreachable: 3, maintenance: 4 }, "the status of a node"),
})

export const cluster: Codec<Cluster> = struct<Cluster>({ name: text32, nodes: list32(clusterNode, 18) })

export interface CacheMetrics {
  readonly streamId: number
  readonly topicId: number
  readonly partitionId: number
  readonly hits: bigint
  readonly misses: bigint
  readonly ratio: number
}

export interface Stats {
  readonly processId: number
  readonly cpuUsage: number
  readonly totalCpuUsage: number
  readonly memoryBytes: bigint
  readonly totalMemoryBytes: bigint
  readonly availableMemoryBytes: bigint
  readonly runTimeMicros: bigint
  readonly startMicros: bigint
  readonly readBytes: bigint
  readonly writtenBytes: bigint
  readonly messagesBytes: bigint
  readonly streamsCount: number
  readonly topicsCount: number
  readonly partitionsCount: number
  readonly segmentsCount: number
  readonly messagesCount: bigint
  readonly clientsCount: number
  readonly groupsCount: number
  readonly hostname: string
  readonly osName: string
  readonly osVersion: string
  readonly kernelVersion: string
  readonly serverVersion: string
  /** `major * 1,000,000 + minor * 1,000 + patch`; 0: unknown. */
  readonly serverSemver: number
  readonly cacheMetrics: readonly CacheMetrics[]
  readonly threads: number
  readonly freeDiskBytes: bigint
  readonly totalDiskBytes: bigint
  /** Some servers of wire 0.12 tell them. */
  readonly openFiles: { readonly open: bigint; readonly limit: bigint } | undefined
}

const openFiles = struct<{ readonly open: bigint; readonly limit: bigint }>({ open: u64, limit: u64 })

export const stats: Codec<Stats> = struct<Stats>({
  processId: u32,
  cpuUsage: f32,
  totalCpuUsage: f32,
  memoryBytes: u64,
  totalMemoryBytes: u64,
  availableMemoryBytes: u64,
  runTimeMicros: u64,
  startMicros: u64,
  readBytes: u64,
  writtenBytes: u64,
  messagesBytes: u64,
  streamsCount: u32,
  topicsCount: u32,
  partitionsCount: u32,
  segmentsCount: u32,
  messagesCount: u64,
  clientsCount: u32,
  groupsCount: u32,
  hostname: text32,
  osName: text32,
  osVersion: text32,
  kernelVersion: text32,
  serverVersion: text32,
  serverSemver: u32,
  cacheMetrics: list32(
    struct<CacheMetrics>({ streamId: u32, topicId: u32, partitionId: u32, hits: u64, misses: u64, ratio: f32 }),
    32,
  ),
  threads: u32,
  freeDiskBytes: u64,
  totalDiskBytes: u64,
  openFiles: {
    write(writer, value, version) {
      if (value !== undefined) openFiles.write(writer, value, version)
    },
    read: (reader, version) => (reader.left === 0 ? undefined : openFiles.read(reader, version)),
  },
})

/** One option that topics, streams or users can have. */
export interface OptionDescription {
  readonly key: string
  readonly default: HeaderValue
  /** Bits of wire 0.12: 1 updatable, 2 resettable, 4 secret, 8 read-only, 16 critical. 0 on wire 0.11. */
  readonly flags: number
  readonly description: string
}

const optionKey = struct<{ readonly key: string }>({ key: name })

export const optionDescription: Codec<OptionDescription> = {
  write(writer, value, version) {
    optionKey.write(writer, value, version)
    writer.u8(headerKindCodes[value.default.kind])
    if (version === "0.12") writer.u8(value.flags)
    writer.u32(value.default.bytes.length)
    writer.raw(value.default.bytes)
    text32.write(writer, value.description, version)
  },
  read(reader, version) {
    const { key } = optionKey.read(reader, version)
    const kind = reader.u8()
    const flags = version === "0.12" ? reader.u8() : 0
    const value = HeaderValue.fromBytes(kind, reader.raw(reader.u32()))
    return { key, default: value, flags, description: text32.read(reader, version) }
  },
}
