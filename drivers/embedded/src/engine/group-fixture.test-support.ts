/** For tests: the tables of groups and offsets in a database of their own, beside a catalog that is made up. */
import { DatabaseSync, type StatementSync } from "node:sqlite"
import { type GroupDescription, MillraceError, NotFoundError, type TopicName } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import type { Change, Command, Room, TopicRow, WriteAccess } from "./command.ts"
import type { Joined, JoinGroup } from "./group-join.ts"
import type { ProcessIdentity, ProcessTable } from "./group-process.ts"
import type { ViewAnswer } from "./group-view.ts"
import { groupRoom } from "./groups.ts"
import { offsetRoom } from "./offsets.ts"
import { holdsSchema } from "./transactional-holds.ts"

/** The topic that most tests speak of. */
export const orders: TopicName = { stream: "shop", topic: "orders" }

/** Another one, for tests of members that read two. */
export const returns: TopicName = { stream: "shop", topic: "returns" }

/** Processes that live until they are told to end. */
export class MadeUpProcesses implements ProcessTable {
  self: ProcessIdentity = { pid: 1, started: "100", place: "here" }
  readonly #ended = new Set<number>()

  /** The next members live in this process. */
  runAs(pid: number, place = "here"): void {
    this.self = { pid, started: "100", place }
  }

  end(pid: number): void {
    this.#ended.add(pid)
  }

  isGone({ pid, place }: ProcessIdentity): boolean {
    return place === "here" && this.#ended.has(pid)
  }
}

/** A store with the topic `orders` and its group `workers`. */
export function storeWithGroup(partitions: number): GroupFixture {
  const fixture = new GroupFixture()
  fixture.makeTopic(orders, partitions)
  fixture.call("groups.create", { group: "workers", topic: orders })
  return fixture
}

/** The kind of the error that something throws. */
export function kindOf(work: () => unknown): string | undefined {
  try {
    work()
    return undefined
  } catch (error) {
    if (error instanceof MillraceError) return error.kind
    throw error
  }
}

/** Runs commands as the engine would, each in a transaction of its own. */
export class GroupFixture {
  readonly processes: MadeUpProcesses = new MadeUpProcesses()
  readonly changes: Change[] = []
  readonly #database = new DatabaseSync(":memory:")
  readonly #rooms: readonly Room[]
  readonly #commands: ReadonlyMap<string, Command>
  readonly #statements = new Map<string, StatementSync>()
  readonly #topics = new Map<string, TopicRow>()
  #lastTopic = 0

  constructor() {
    this.#rooms = [offsetRoom, groupRoom(this.processes)]
    for (const schema of [...this.#rooms.map((room) => room.schema), holdsSchema]) this.#database.exec(schema)
    this.#commands = new Map(this.#rooms.flatMap(({ commands }) => commands.map((command) => [command.name, command])))
  }

  /** Runs one command. A wait command answers `undefined` where it would wait. */
  call<R>(name: string, args: unknown): R {
    const command = this.#commands.get(name)
    if (command === undefined) throw new Error(`no command ${name}`)
    return this.#transaction(() =>
      command.mode === "wait" ? command.run(this.#access(), args, false) : command.run(this.#access(), args),
    ) as R
  }

  /** The error of the only entry. */
  refusal(
    outcomes: readonly ({ readonly value?: unknown } | { readonly error: unknown })[],
  ): MillraceError | undefined {
    const [outcome] = outcomes
    return outcome !== undefined && "error" in outcome ? (outcome.error as MillraceError) : undefined
  }

  /** Makes, or makes anew, a topic. */
  makeTopic(name: TopicName, partitions: number, details: Partial<TopicRow> = {}): TopicRow {
    const id = ++this.#lastTopic
    const row: TopicRow = {
      id,
      ...name,
      lineage: `${id}.0`,
      partitionKeys: Array.from({ length: partitions }, (_, partition) => id * 1000 + partition),
      durability: "synced",
      offsetDurability: "synced",
      deduplicationWindowMs: 0,
      deduplicateIds: false,
      expireAfterMs: undefined,
      maxBytes: undefined,
      createdMicros: 0n,
      native: undefined,
      ...details,
    }
    this.#topics.set(keyOf(name), row)
    return row
  }

  addPartitions(name: TopicName, count: number): void {
    const row = this.#topics.get(keyOf(name)) as TopicRow
    const more = Array.from({ length: count }, (_, index) => row.id * 1000 + row.partitionKeys.length + index)
    this.#topics.set(keyOf(name), { ...row, partitionKeys: [...row.partitionKeys, ...more] })
  }

  /** A new history, of which the rooms have not heard. */
  renewHistory(name: TopicName): void {
    const row = this.#topics.get(keyOf(name)) as TopicRow
    this.#topics.set(keyOf(name), { ...row, lineage: `${row.lineage}+` })
  }

  purgeTopic(name: TopicName): void {
    this.renewHistory(name)
    const row = this.#topics.get(keyOf(name)) as TopicRow
    this.#transaction(() => this.#rooms.forEach((room) => void room.topicPurged?.(this.#access(), row.id)))
  }

  deleteTopic(name: TopicName): void {
    const row = this.#topics.get(keyOf(name)) as TopicRow
    this.#topics.delete(keyOf(name))
    this.#transaction(() => this.#rooms.forEach((room) => void room.topicDeleted?.(this.#access(), row.id)))
  }

  join(memberId: string, options: Partial<JoinGroup> = {}): Joined {
    const defaults = { group: "workers", topics: [orders], sessionTimeoutMs: 10_000, rebalanceTimeoutMs: 30_000 }
    return this.call<Joined>("groups.join", { ...defaults, memberId, ...options } satisfies JoinGroup)
  }

  view(member: number): ViewAnswer {
    return this.call("groups.observe", { member })
  }

  /** The partitions of a member, those that are being revoked with a minus. Partition 0 of a topic stays 0. */
  partitions(member: number): number[] | undefined {
    return this.view(member)?.claims.map(({ partition, revoking }) => (revoking ? -partition : partition))
  }

  claims(member: number, wanted: { readonly revoking?: boolean } = {}): number[] {
    const claims = this.view(member)?.claims ?? []
    return claims
      .filter(({ revoking }) => wanted.revoking === undefined || revoking === wanted.revoking)
      .map(({ claim }) => claim)
  }

  /** The member lets everything go that is wanted back. */
  drain(member: number): void {
    this.call("groups.release", { member, claims: this.claims(member, { revoking: true }) })
  }

  describe(): GroupDescription {
    return this.call<GroupDescription>("groups.describe", { group: "workers", topic: orders })
  }

  /** The partitions of each member by its id, as described. */
  described(): Record<string, number[]> {
    const entries = this.describe().members.map((member) => [
      member.memberId,
      member.partitions.map((p) => p.partition),
    ])
    return Object.fromEntries(entries)
  }

  /** How many rows all tables hold, to see that nothing is left behind. */
  rows(table: string): number {
    return Number(this.#database.prepare(`SELECT count(*) AS rows FROM ${table}`).get()?.rows)
  }

  execute(sql: string): void {
    this.#database.exec(sql)
  }

  query(sql: string): Record<string, unknown>[] {
    return this.#statement(sql).all()
  }

  #transaction<R>(work: () => R): R {
    this.#database.exec("BEGIN IMMEDIATE")
    try {
      const answer = work()
      this.#database.exec("COMMIT")
      return answer
    } catch (error) {
      this.#database.exec("ROLLBACK")
      throw error
    }
  }

  #access(): WriteAccess {
    return {
      statement: (sql) => this.#statement(sql),
      topic: (name) => this.#topic(name),
      nowMicros: 0n,
      monotonicMs: 0,
      random: seededRandom(1),
      changed: (change) => void this.changes.push(change),
    }
  }

  #statement(sql: string): StatementSync {
    let statement = this.#statements.get(sql)
    if (statement === undefined) {
      statement = this.#database.prepare(sql)
      statement.setReadBigInts(true)
      this.#statements.set(sql, statement)
    }
    return statement
  }

  #topic(name: TopicName): TopicRow {
    const row = this.#topics.get(keyOf(name))
    if (row === undefined) throw new NotFoundError(`topic "${name.stream}/${name.topic}" does not exist`)
    return row
  }
}

function keyOf({ stream, topic }: TopicName): string {
  return `${stream}/${topic}`
}
