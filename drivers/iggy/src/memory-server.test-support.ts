/**
 * A small Apache Iggy in memory, for tests of the facets: streams, topics, messages, offsets and groups as docs/drivers/iggy-wire.md
 * tells of them. Members are told apart by the client id of their requests. It reuses ids of deleted topics, as the server does.
 */
import { batchChecksum, messageChecksums } from "./batch/checksum.ts"
import { batchAt, batchHeaderBytes, messageAt, messageHeaderBytes } from "./batch/layout.ts"
import { type AnyCommand, commands } from "./codec/all-commands.test-support.ts"
import { noContext, type TopicDetails, withoutLimit } from "./codec/catalog-structures.ts"
import type { Command } from "./codec/command.ts"
import type { Consumer } from "./codec/identifier.ts"
import type { Options } from "./codec/options.ts"
import { optionValue } from "./codec/options.ts"
import {
  granted,
  type Received,
  refusal,
  reply,
  type Script,
  ScriptedServer,
  type Visitor,
} from "./connection/scripted-server.test-support.ts"
import { ByteReader } from "./wire/byte-reader.ts"
import { ByteWriter } from "./wire/byte-writer.ts"
import { nonReplicated, register } from "./wire/operation.ts"

interface StoredBatch {
  readonly bytes: Buffer
  readonly base: bigint
  readonly count: number
}

interface MemoryPartition {
  batches: StoredBatch[]
  end: bigint
  readonly offsets: Map<string, bigint>
}

interface MemoryGroup {
  readonly id: number
  readonly name: string
  generation: bigint
  readonly members: Map<bigint, number[]>
}

interface MemoryTopic {
  readonly id: number
  readonly name: string
  readonly created: bigint
  readonly options: Options
  readonly partitions: MemoryPartition[]
  readonly groups: Map<string, MemoryGroup>
  lastGroup: number
}

interface MemoryStream {
  readonly id: number
  readonly created: bigint
  readonly topics: Map<string, MemoryTopic>
}

class Refused extends Error {
  readonly code: number
  constructor(code: number) {
    super(`refused with ${code}`)
    this.code = code
  }
}

type Handler = (query: never, client: bigint) => unknown

export class MemoryIggy {
  readonly server: ScriptedServer
  readonly streams: Map<string, MemoryStream> = new Map()
  /** May answer in the server's place (true: it did, or wants silence). */
  intercept: (request: Received, visitor: Visitor) => boolean = () => false
  #now = 1_764_288_000_000_000n
  readonly #byCode = new Map<number, AnyCommand>()
  readonly #byOperation = new Map<number, AnyCommand>()
  readonly #clients = new Map<Visitor, bigint>()

  static async start(): Promise<MemoryIggy> {
    const server = await ScriptedServer.start()
    return new MemoryIggy(server)
  }

  private constructor(server: ScriptedServer) {
    this.server = server
    for (const command of commands) {
      if (command.only === "0.12") continue
      if (command.operation === nonReplicated) this.#byCode.set(command.code, command)
      else this.#byOperation.set(command.operation, command)
    }
    server.script = this.#script
  }

  /** A topic's names of the commands that it got, in order. */
  get asked(): string[] {
    return this.server.received.map((request) => this.#commandOf(request)?.name ?? `operation ${request.operation}`)
  }

  topic(stream: string, topic: string): MemoryTopic {
    return this.#topic({ stream, topic })
  }

  /** What another client would do: nothing tells of it. */
  purge(stream: string, topic: string): void {
    for (const partition of this.#topic({ stream, topic }).partitions) {
      partition.batches = []
      partition.end = 0n
      partition.offsets.clear()
    }
  }

  /** Retention: the oldest batches go. */
  trim(stream: string, topic: string, batches: number): void {
    for (const partition of this.#topic({ stream, topic }).partitions) partition.batches.splice(0, batches)
  }

  /** A member that is taken out, as for missed heartbeats. */
  expel(stream: string, topic: string, group: string): void {
    const found = this.#topic({ stream, topic }).groups.get(group)
    if (found === undefined) throw new Error(`no group ${group}`)
    found.members.clear()
    found.generation++
  }

  async stop(): Promise<void> {
    await this.server.stop()
  }

  readonly #script: Script = (request, visitor) => {
    if (!this.#clients.has(visitor)) {
      this.#clients.set(visitor, request.client)
      visitor.socket.on("close", () => this.#leaveAll(this.#clients.get(visitor) ?? 0n))
    }
    if (this.intercept(request, visitor)) return
    if (request.operation === register) {
      this.#clients.set(visitor, request.client)
      return visitor.send(granted(request))
    }
    const command = this.#commandOf(request)
    if (command === undefined) return visitor.send(refusal(request, 3))
    try {
      visitor.send(reply(request, this.#answer(command, request)))
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      const partitionPlane = request.operation >= 160 || request.operation === nonReplicated
      visitor.send(refusal(request, error.code, partitionPlane ? "status" : "result"))
    }
  }

  #commandOf(request: Received): AnyCommand | undefined {
    return request.operation === nonReplicated
      ? this.#byCode.get(request.code)
      : this.#byOperation.get(request.operation)
  }

  #answer(command: Command<unknown, unknown>, request: Received): Uint8Array {
    const query = command.request.read(new ByteReader(request.body, command.name), "0.11")
    const handler = this.#handlers[command.name] as Handler | undefined
    const value = handler === undefined ? undefined : handler(query as never, request.client)
    const writer = new ByteWriter()
    if (command.name === "get_cluster_metadata") writer.zeros(8)
    else command.reply.write(writer, value, "0.11")
    return writer.bytes()
  }

  readonly #handlers: Readonly<Record<string, Handler>> = {
    get_streams: () => [...this.streams].map(([name, stream]) => this.#streamOf(name, stream)),
    get_stream: ({ stream }: Place) => {
      const found = this.streams.get(stream)
      if (found === undefined) return undefined
      return {
        ...this.#streamOf(stream, found),
        topics: [...found.topics.values()].map((topic) => this.#detailsOf(topic)),
      }
    },
    create_stream: ({ name }: { name: string }) => {
      if (this.streams.has(name)) throw new Refused(1012)
      const stream = { id: freeId([...this.streams.values()]), created: this.#tick(), topics: new Map() }
      this.streams.set(name, stream)
      return this.#streamOf(name, stream)
    },
    delete_stream: ({ stream }: Place) => {
      if (!this.streams.delete(stream)) throw new Refused(1009)
    },
    get_topic: ({ stream, topic }: Place) => {
      const found = this.streams.get(stream)?.topics.get(topic)
      return found === undefined ? undefined : this.#detailsOf(found)
    },
    create_topic: ({
      stream,
      name,
      partitionsCount,
      options,
    }: Place & { name: string; partitionsCount: number; options: Options }) => {
      const topics = this.#stream({ stream }).topics
      if (topics.has(name)) throw new Refused(2013)
      const partitions = Array.from({ length: partitionsCount }, newPartition)
      const id = freeId([...topics.values()])
      const topic: MemoryTopic = {
        id,
        name,
        created: this.#tick(),
        options,
        partitions,
        groups: new Map(),
        lastGroup: 0,
      }
      topics.set(name, topic)
      return this.#detailsOf(topic)
    },
    delete_topic: ({ stream, topic }: Place) => {
      if (!this.#stream({ stream }).topics.delete(topic)) throw new Refused(2010)
    },
    purge_topic: ({ stream, topic }: Place) => this.purge(stream, topic),
    create_partitions: ({ count, ...place }: Place & { count: number }) => {
      const { partitions, groups } = this.#topic(place)
      for (let added = 0; added < count; added++) partitions.push(newPartition())
      for (const group of groups.values()) this.#deal(group, partitions.length)
    },
    send_messages: ({
      batch,
      partitioning,
      ...place
    }: Place & { batch: Uint8Array; partitioning: { partition: number } }) => {
      const topic = this.streams.get(place.stream)?.topics.get(place.topic)
      const partition = topic?.partitions[partitioning.partition]
      if (topic === undefined || partition === undefined) throw new Refused(20)
      const base = this.#store(partition, Buffer.from(batch), partitioning.partition)
      return [{ streamId: 0, topicId: topic.id, partitionId: partitioning.partition, baseOffset: base }]
    },
    poll_messages: (query: Place & { partition: number; count: number; strategy: { kind: string; value: bigint } }) => {
      const partition = this.#topic(query).partitions[query.partition]
      if (partition === undefined) throw new Refused(3007)
      const records = pollOf(partition, query)
      const messagesCount = records.reduce((sum, batch) => sum + batch.readUInt32LE(batchAt.count), 0)
      const currentOffset = partition.end === 0n ? 0n : partition.end - 1n
      return {
        partition: query.partition,
        currentOffset,
        messagesCount,
        context: noContext,
        records: Buffer.concat(records),
      }
    },
    get_consumer_offset: ({ consumer, partition, ...place }: Place & { consumer: Consumer; partition: number }) => {
      const topic = this.streams.get(place.stream)?.topics.get(place.topic)
      const found = topic?.partitions[partition]
      const stored = found?.offsets.get(this.#ownerOf(topic, consumer) ?? "")
      if (found === undefined || stored === undefined) return undefined
      return { partition, currentOffset: found.end - 1n, storedOffset: stored }
    },
    store_consumer_offset: (query: OffsetQuery & { offset: bigint }, client) => {
      const { partition, owner } = this.#offsetPlace(query, client)
      if (query.offset >= partition.end) throw new Refused(4100)
      partition.offsets.set(owner, query.offset)
    },
    delete_consumer_offset: (query: OffsetQuery, client) => {
      const { partition, owner } = this.#offsetPlace(query, client)
      if (!partition.offsets.delete(owner)) throw new Refused(3021)
    },
    get_consumer_group: ({ group, ...place }: GroupQuery) => {
      const topic = this.#topic(place)
      const found = topic.groups.get(group)
      if (found === undefined) return undefined
      const members = [...found.members.values()].map((partitions, id) => ({ id, partitions }))
      const { id, name } = found
      return { id, name, partitionsCount: topic.partitions.length, membersCount: members.length, members }
    },
    create_consumer_group: ({ name, ...place }: Place & { name: string }) => {
      const topic = this.#topic(place)
      if (topic.groups.has(name)) throw new Refused(5004)
      const group: MemoryGroup = { id: topic.lastGroup++, name, generation: 0n, members: new Map() }
      topic.groups.set(name, group)
      return { id: group.id, name, partitionsCount: topic.partitions.length, membersCount: 0 }
    },
    delete_consumer_group: ({ group, ...place }: GroupQuery) => {
      const topic = this.#topic(place)
      const found = topic.groups.get(group)
      if (found === undefined) throw new Refused(5000)
      topic.groups.delete(group)
      for (const { offsets } of topic.partitions) offsets.delete(`group ${found.id}`)
    },
    join_consumer_group: ({ group, ...place }: GroupQuery, client) => {
      const topic = this.#topic(place)
      const found = this.#group(topic, group)
      if (found.members.has(client)) return
      found.members.set(client, [])
      this.#deal(found, topic.partitions.length)
    },
    leave_consumer_group: ({ group, ...place }: GroupQuery, client) => {
      const topic = this.#topic(place)
      const found = this.#group(topic, group)
      if (!found.members.delete(client)) throw new Refused(5006)
      this.#deal(found, topic.partitions.length)
    },
    sync_consumer_group: ({ group, ...place }: GroupQuery, client) => {
      const found = this.streams.get(place.stream)?.topics.get(place.topic)?.groups.get(group)
      const partitions = found?.members.get(client)
      return found === undefined || partitions === undefined ? undefined : { generation: found.generation, partitions }
    },
  }

  #tick(): bigint {
    this.#now += 1_000n
    return this.#now
  }

  #stream({ stream }: { stream: string }): MemoryStream {
    const found = this.streams.get(stream)
    if (found === undefined) throw new Refused(1009)
    return found
  }

  #topic(place: { stream: string; topic: string }): MemoryTopic {
    const found = this.#stream(place).topics.get(place.topic)
    if (found === undefined) throw new Refused(2010)
    return found
  }

  #group(topic: MemoryTopic, group: string): MemoryGroup {
    const found = topic.groups.get(group)
    if (found === undefined) throw new Refused(5000)
    return found
  }

  /** Members keep what is theirs as far as their fair share goes. */
  #deal(group: MemoryGroup, partitions: number): void {
    group.generation++
    const members = [...group.members.keys()]
    const most = (index: number): number =>
      Math.floor(partitions / members.length) + (index < partitions % members.length ? 1 : 0)
    const free = new Set(Array.from({ length: partitions }, (_, partition) => partition))
    for (const [index, member] of members.entries()) {
      const kept = (group.members.get(member) ?? []).slice(0, most(index))
      group.members.set(member, kept)
      for (const partition of kept) free.delete(partition)
    }
    for (const [index, member] of members.entries()) {
      const held = group.members.get(member) as number[]
      for (const partition of free) {
        if (held.length >= most(index)) break
        held.push(partition)
        free.delete(partition)
      }
    }
  }

  #leaveAll(client: bigint): void {
    for (const { topics } of this.streams.values()) {
      for (const { groups, partitions } of topics.values()) {
        for (const group of groups.values()) if (group.members.delete(client)) this.#deal(group, partitions.length)
      }
    }
  }

  #ownerOf(topic: MemoryTopic | undefined, consumer: Consumer): string | undefined {
    if (consumer.kind === "consumer") return `consumer ${consumer.id}`
    const group = topic?.groups.get(String(consumer.id))
    return group === undefined ? undefined : `group ${group.id}`
  }

  #offsetPlace(query: OffsetQuery, client: bigint): { partition: MemoryPartition; owner: string } {
    const topic = this.streams.get(query.stream)?.topics.get(query.topic)
    const partition = topic?.partitions[query.partition]
    const owner = this.#ownerOf(topic, query.consumer)
    if (topic === undefined || partition === undefined || owner === undefined) throw new Refused(20)
    if (query.consumer.kind === "group") {
      const owned = topic.groups.get(String(query.consumer.id))?.members.get(client)
      if (!owned?.includes(query.partition)) throw new Refused(20)
    }
    return { partition, owner }
  }

  #store(partition: MemoryPartition, bytes: Buffer, number: number): bigint {
    const base = partition.end
    const count = bytes.readUInt32LE(batchAt.count)
    bytes.writeBigUInt64LE(BigInt(number), batchAt.partition)
    bytes.writeBigUInt64LE(base, batchAt.baseOffset)
    bytes.writeBigUInt64LE(this.#tick(), batchAt.appendTime)
    partition.batches.push({ bytes: sealed(bytes), base, count })
    partition.end += BigInt(count)
    return base
  }

  #streamOf(name: string, { id, created, topics }: MemoryStream): object {
    const empty = { sizeBytes: 0n, messagesCount: 0n, options: [], derivedOptions: [] }
    return { id, createdMicros: created, topicsCount: topics.size, name, ...empty }
  }

  #detailsOf(topic: MemoryTopic): TopicDetails {
    const partitions = topic.partitions.map(({ batches, end }, id) => ({
      id,
      createdMicros: topic.created,
      segmentsCount: 1,
      currentOffset: end === 0n ? 0n : end - 1n,
      sizeBytes: BigInt(batches.reduce((sum, { bytes }) => sum + bytes.length, 0)),
      messagesCount: BigInt(batches.reduce((sum, { count }) => sum + count, 0)),
      context: noContext,
      memberNodes: [],
      inSyncNodes: [],
    }))
    const limit = (key: string): bigint => (optionValue(topic.options, key) as bigint | undefined) ?? withoutLimit
    return {
      id: topic.id,
      createdMicros: topic.created,
      partitionsCount: partitions.length,
      messageExpiryMicros: limit("message_expiry"),
      compression: "none",
      maxSizeBytes: limit("max_topic_size"),
      sizeBytes: 0n,
      messagesCount: 0n,
      name: topic.name,
      options: topic.options,
      derivedOptions: [],
      partitions,
    }
  }
}

interface Place {
  readonly stream: string
  readonly topic: string
}
interface GroupQuery extends Place {
  readonly group: string
}
interface OffsetQuery extends Place {
  readonly consumer: Consumer
  readonly partition: number
}

function newPartition(): MemoryPartition {
  return { batches: [], end: 0n, offsets: new Map() }
}

function freeId(taken: readonly { readonly id: number }[]): number {
  let id = 0
  while (taken.some((one) => one.id === id)) id++
  return id
}

function pollOf(
  { batches }: MemoryPartition,
  { strategy, count }: { count: number; strategy: { kind: string; value: bigint } },
): Buffer[] {
  const from = strategy.kind === "offset" ? strategy.value : 0n
  const found = batches.filter(({ bytes, base, count: size }) =>
    strategy.kind === "timestamp"
      ? bytes.readBigUInt64LE(batchAt.appendTime) >= strategy.value
      : base + BigInt(size) > from,
  )
  const records: Buffer[] = []
  let left = count
  for (const { bytes, base, count: size } of found) {
    if (left === 0) break
    const first = base >= from ? 0 : Number(from - base)
    const taken = Math.min(left, size - first)
    records.push(slice(bytes, first, taken))
    left -= taken
  }
  return records
}

/** Some of a batch's messages, under the same base offset. */
function slice(bytes: Buffer, first: number, count: number): Buffer {
  const starts = startsOf(bytes)
  const [from, to] = [starts[first] as number, starts[first + count] ?? bytes.length]
  const part = Buffer.concat([bytes.subarray(0, batchHeaderBytes), bytes.subarray(from, to)])
  part.writeBigUInt64LE(BigInt(part.length), batchAt.length)
  part.writeUInt32LE(count, batchAt.count)
  return sealed(part)
}

function sealed(bytes: Buffer): Buffer {
  const hashes = messageChecksums({ bytes, starts: Uint32Array.from(startsOf(bytes)), end: bytes.length })
  bytes.writeBigUInt64LE(batchChecksum(bytes, 0, hashes), batchAt.checksum)
  return bytes
}

function startsOf(bytes: Buffer): number[] {
  const starts: number[] = []
  let at = batchHeaderBytes
  while (at < bytes.length) {
    starts.push(at)
    at +=
      messageHeaderBytes +
      bytes.readUInt32LE(at + messageAt.payloadLength) +
      bytes.readUInt32LE(at + messageAt.headersLength)
  }
  return starts
}
