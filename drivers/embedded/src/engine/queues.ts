/** Work queues: made, found, described, waited for and deleted. Handing out and settling stand beside. */
import type { QueueDescription, QueueSpec, TopicName } from "@millrace/contract"
import type { Access, Command, ReadCommand, Room, TopicRow, WaitCommand, WriteAccess, WriteCommand } from "./command.ts"
import type { ProcessTable } from "./group-process.ts"
import { QueueHolders } from "./queue-holders.ts"
import { allLeases, closeBelow, firstOpen } from "./queue-lease.ts"
import { newIn, pullCommand, type QueueParts } from "./queue-pull.ts"
import { QueueRecords } from "./queue-records.ts"
import {
  checkSame,
  deleteQueue,
  emptyQueue,
  findQueue,
  insertQueue,
  isThere,
  noSuchQueue,
  placesOf,
  type QueueCall,
  type QueueRow,
  queuesOf,
  requireQueue,
  specOf,
} from "./queue-row.ts"
import { queueSchema } from "./queue-schema.ts"
import { settleCommand } from "./queue-settle.ts"
import { QueueView } from "./queue-view.ts"
import type { Transaction } from "./transaction.ts"

/** Arguments of `queues.describe` and `queues.delete`. */
export interface QueueName {
  readonly topic: TopicName
  readonly queue: string
}

/** Arguments of `queues.find` and `queues.make`. */
export interface OpenQueue extends QueueName {
  readonly spec: QueueSpec
}

/** A queue that is open: its number, and what it was made with. */
export interface OpenedQueue {
  readonly id: number
  readonly spec: QueueSpec
}

/** Arguments of `queues.ready`. */
export interface QueueReady extends QueueCall {
  readonly maxWaitMs: number
}

/** The tables of queues, and what becomes of them with their topic. */
export const queueRoom: Room = {
  schema: queueSchema,
  format: 2,
  commands: [],
  topicPurged(access, topicId) {
    for (const { id } of queuesOf(access, topicId)) emptyQueue(access, id)
  },
  topicDeleted(access, topicId) {
    for (const { id } of queuesOf(access, topicId)) deleteQueue(access, id)
  },
}

/** The queues of one engine, and their commands. */
export class Queues {
  readonly #holders: QueueHolders
  /** One for each queue that this session has used. */
  readonly #views = new Map<number, QueueView>()
  readonly #records = new QueueRecords()

  constructor(processes: ProcessTable) {
    this.#holders = new QueueHolders(processes)
  }

  get commands(): readonly Command[] {
    const parts: QueueParts = { holders: this.#holders, records: this.#records, view: (row) => this.#view(row) }
    return [
      findCommand,
      this.#makeCommand(),
      this.#describeCommand(),
      this.#listCommand(),
      deleteCommand,
      this.#readyCommand(),
      pullCommand(parts),
      settleCommand(parts),
    ]
  }

  /** The queue, made when it does not exist. @throws InvalidError when it has other settings, NotFoundError for the topic */
  #makeCommand(): WriteCommand<OpenQueue, OpenedQueue> {
    return {
      mode: "write",
      name: "queues.make",
      durability: () => "synced",
      run: (access, args) => {
        const topic = access.topic(args.topic)
        // What is known of queues that are gone would only grow. It is what the store says, so that nothing is lost with it.
        for (const id of this.#views.keys()) if (!isThere(access, id)) this.#views.delete(id)
        const row =
          findQueue(access, topic.id, args.queue) ?? insertQueue(access, topic, { name: args.queue, spec: args.spec })
        return opened(row, args)
      },
    }
  }

  #describeCommand(): ReadCommand<QueueName, QueueDescription> {
    return {
      mode: "read",
      name: "queues.describe",
      run: (access, { topic, queue }) => {
        const row = findQueue(access, access.topic(topic).id, queue)
        if (row === undefined) throw noSuchQueue(queue, topic)
        return this.#describe(access, topic, row)
      },
    }
  }

  #listCommand(): ReadCommand<TopicName, QueueDescription[]> {
    return {
      mode: "read",
      name: "queues.list",
      run: (access, topic) => queuesOf(access, access.topic(topic).id).map((row) => this.#describe(access, topic, row)),
    }
  }

  /**
   * Answers true as soon as a pull would find something, false when the wait is over. One taker of this engine is told at a time: the next
   * one when that has pulled and left something, or has not pulled in time.
   */
  #readyCommand(): WaitCommand<QueueReady, boolean> {
    return {
      mode: "wait",
      name: "queues.ready",
      interest: ["appends", "queues"],
      maxWaitMs: ({ maxWaitMs }) => maxWaitMs,
      dueMs: ({ queue }) => this.#views.get(queue)?.nextMs ?? Number.POSITIVE_INFINITY,
      concerns: ({ queue }, keys) => this.#views.get(queue)?.keys.some((key) => keys.has(key)) ?? true,
      run: (access, args, over) => (this.#isReady(access as Transaction, args) ? true : over ? false : undefined),
    }
  }

  #isReady(access: Transaction, args: QueueReady): boolean {
    const { row, topic } = requireQueue(access, args)
    const view = this.#view(row)
    return view.offers.isFor(access, () => this.#recordsFor(access, { row, topic, view }))
  }

  /** How many records a pull would find, at least where there is any. */
  #recordsFor(
    access: Transaction,
    { row, topic, view }: { readonly row: QueueRow; readonly topic: TopicRow; readonly view: QueueView },
  ): bigint {
    view.look(access)
    view.keys = topic.partitionKeys
    const places = placesOf(access, topic, row.id)
    // What is gone may be what fills the queue.
    const again = BigInt(Math.max(view.firstOver(access), places.some(({ stale }) => stale) ? 1 : 0))
    const { ackPolicy, maxAckPending } = view.spec
    const anew = places.reduce((sum, place) => sum + newIn(access, place), 0n)
    if (ackPolicy === "none" || maxAckPending === undefined) return again + anew
    const room = BigInt(Math.max(0, maxAckPending - row.pending))
    return again + (anew < room ? anew : room)
  }

  #describe(access: Access, { stream, topic: name }: TopicName, row: QueueRow): QueueDescription {
    const topic = access.topic({ stream, topic: name })
    const view = this.#view(row)
    view.look(access)
    const over = view.over(access)
    const places = placesOf(access, topic, row.id)
    const floors = places.map(({ next }) => next)
    let ackPending = 0
    let redelivered = 0
    let delayed = 0
    for (const lease of allLeases(access, row.id)) {
      closeBelow(lease, places[lease.partition]?.state.first ?? 0n)
      if (lease.open === 0) continue
      const waits = lease.holder === undefined || over.has(lease.id)
      ackPending += lease.open
      if (waits || lease.deliveries > 1) redelivered += lease.open
      if (waits) delayed += lease.open
      const first = lease.first + BigInt(firstOpen(lease))
      if (first < (floors[lease.partition] ?? 0n)) floors[lease.partition] = first
    }
    let undelivered = 0n
    for (const { next, state } of places) if (next < state.next) undelivered += state.next - next
    return {
      stream,
      topic: name,
      queue: row.name,
      spec: view.spec,
      undelivered,
      ackPending,
      redelivered,
      delayed,
      createdMicros: row.createdMicros,
      partitions: places.map(({ partition, next }) => ({ partition, next, floor: floors[partition] ?? next })),
    }
  }

  #view(row: QueueRow): QueueView {
    let view = this.#views.get(row.id)
    if (view === undefined) {
      view = new QueueView(row, this.#holders)
      this.#views.set(row.id, view)
    }
    return view
  }
}

/** The queue, when it exists. @throws InvalidError when it has other settings, NotFoundError for the topic */
const findCommand: ReadCommand<OpenQueue, OpenedQueue | undefined> = {
  mode: "read",
  name: "queues.find",
  run: (access, args) => {
    const row = findQueue(access, access.topic(args.topic).id, args.queue)
    return row === undefined ? undefined : opened(row, args)
  },
}

/** Forgets a queue; whoever waits for it is told. @throws NotFoundError for the topic or the queue */
const deleteCommand: WriteCommand<QueueName, undefined> = {
  mode: "write",
  name: "queues.delete",
  durability: () => "synced",
  run(access: WriteAccess, { topic, queue }) {
    const row = findQueue(access, access.topic(topic).id, queue)
    if (row === undefined) throw noSuchQueue(queue, topic)
    deleteQueue(access, row.id)
    access.changed("queues")
  },
}

function opened(row: QueueRow, { topic, queue, spec }: OpenQueue): OpenedQueue {
  const made = specOf(row.spec)
  checkSame(made, spec, { topic, queue })
  return { id: row.id, spec: made }
}
