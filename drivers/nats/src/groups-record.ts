/**
 * A group as it is kept: one record a group name, changed only as a whole (by compare-and-set), so that members, topics and claims
 * always agree. Text form is JSON, to be read by people who look into the bucket; field names are part of the format.
 */
import { CorruptionError, type Lineage, StorageError, type TopicName } from "@millrace/contract"

/** Written into each record; a record with a higher number is refused. */
const groupFormat = 1

/** More partitions than this no topic has; a record that says so is damaged. */
const mostPartitions = 100_000

export interface GroupRecord {
  /** Drawn at creation: tells the claims of a group that was deleted and made anew apart. */
  readonly id: string
  /** Grows with every change of who reads what. */
  readonly generation: number
  /** The number that the next topic, member or claim gets. Numbers are never given twice under one `id`. */
  readonly next: number
  readonly topics: readonly GroupTopic[]
  readonly members: readonly GroupMember[]
  readonly claims: readonly GroupClaim[]
}

export interface GroupTopic extends TopicName {
  readonly number: number
  /** The history as it was last seen; absent while the topic does not exist. */
  readonly lineage: Lineage | undefined
  /** 0 while the topic does not exist. */
  readonly partitions: number
}

export interface GroupMember {
  /** One incarnation: a member that comes back gets a new number. */
  readonly number: number
  readonly memberId: string
  readonly topics: readonly number[]
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
}

/** The right to commit one partition. It has one owner all of its life; whoever gets the partition next has a claim with a higher number. */
export interface GroupClaim {
  readonly number: number
  readonly topic: number
  readonly partition: number
  readonly member: number
  /** The member that gets the partition next; absent while it is not being taken back. */
  readonly heir: number | undefined
}

/** The bytes of the record. */
export function formatGroup(record: GroupRecord): Uint8Array {
  return new TextEncoder().encode(JSON.stringify({ format: groupFormat, ...record }))
}

/**
 * The record again, checked field by field.
 * @throws StorageError when a newer version of Millrace wrote it, CorruptionError when it is no group record
 */
export function parseGroup(group: string, bytes: Uint8Array): GroupRecord {
  const refuse = (what: string): CorruptionError =>
    new CorruptionError(`the record of group ${JSON.stringify(group)} is damaged: ${what}`, { context: { group } })
  let json: unknown
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes))
  } catch (error) {
    throw refuse(`it is not JSON (${String(error)})`)
  }
  const fields = new Fields(json, refuse)
  const format = fields.count("format")
  if (format > groupFormat) {
    throw new StorageError(
      `group ${JSON.stringify(group)} was written by a newer version of Millrace: its format is ${format}, this version reads up to ${groupFormat}`,
      { context: { group } },
    )
  }
  const record: GroupRecord = {
    id: fields.text("id"),
    generation: fields.count("generation"),
    next: fields.count("next"),
    topics: fields.list("topics").map((topic) => ({
      number: topic.count("number"),
      stream: topic.text("stream"),
      topic: topic.text("topic"),
      lineage: topic.has("lineage") ? topic.text("lineage") : undefined,
      partitions: topic.count("partitions"),
    })),
    members: fields.list("members").map((member) => ({
      number: member.count("number"),
      memberId: member.text("memberId"),
      topics: member.counts("topics"),
      sessionTimeoutMs: member.count("sessionTimeoutMs"),
      rebalanceTimeoutMs: member.count("rebalanceTimeoutMs"),
    })),
    claims: fields.list("claims").map((claim) => ({
      number: claim.count("number"),
      topic: claim.count("topic"),
      partition: claim.count("partition"),
      member: claim.count("member"),
      heir: claim.has("heir") ? claim.count("heir") : undefined,
    })),
  }
  const topics = new Map(record.topics.map(({ number, partitions }) => [number, partitions]))
  const members = new Set(record.members.map(({ number }) => number))
  if (record.topics.some(({ partitions }) => partitions > mostPartitions))
    throw refuse("a topic has too many partitions")
  for (const { number, topic, partition, member } of record.claims) {
    if (partition >= (topics.get(topic) ?? 0) || !members.has(member))
      throw refuse(`claim ${number} is of nothing that there is`)
  }
  return record
}

/** Reads one JSON object field by field. */
class Fields {
  readonly #values: Readonly<Record<string, unknown>>
  readonly #refuse: (what: string) => Error

  constructor(json: unknown, refuse: (what: string) => Error) {
    if (typeof json !== "object" || json === null || Array.isArray(json)) throw refuse("an object is missing")
    this.#values = json as Record<string, unknown>
    this.#refuse = refuse
  }

  has(name: string): boolean {
    return this.#values[name] !== undefined
  }

  text(name: string): string {
    const value = this.#values[name]
    if (typeof value !== "string") throw this.#refuse(`"${name}" is ${JSON.stringify(value)}, not a text`)
    return value
  }

  count(name: string): number {
    return this.#count(name, this.#values[name])
  }

  counts(name: string): number[] {
    return this.#array(name).map((value) => this.#count(name, value))
  }

  list(name: string): Fields[] {
    return this.#array(name).map((value) => new Fields(value, this.#refuse))
  }

  #array(name: string): unknown[] {
    const value = this.#values[name]
    if (!Array.isArray(value)) throw this.#refuse(`"${name}" is ${JSON.stringify(value)}, not a list`)
    return value
  }

  #count(name: string, value: unknown): number {
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value
    throw this.#refuse(`"${name}" is ${JSON.stringify(value)}, not a whole number from 0`)
  }
}
