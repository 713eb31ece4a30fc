/** What tests of readers, offsets and groups need of a real Kafka: sessions, topics of their own, and a small consumer over the contract. */
import { randomBytes } from "node:crypto"
import {
  type Claim,
  type GroupCoordinator,
  Headers,
  type Membership,
  type MillraceError,
  type OffsetOwner,
  type Position,
  type ReadPosition,
  type Session,
  type TopicDescription,
} from "@millrace/contract"
import { kafkaDriver } from "../driver.ts"
import type { GroupProtocolChoice } from "./group-coordinator.ts"

/** A session on the brokers of a URL, whose groups speak one protocol. */
export interface GroupSession {
  readonly session: Session
  readonly groups: GroupCoordinator
  close(): Promise<void>
}

export async function openSession(url: string, protocol: GroupProtocolChoice = "auto"): Promise<GroupSession> {
  const hosts = url
    .replace("kafka://", "")
    .split(",")
    .map((text) => ({ host: text.split(":")[0] as string, port: Number(text.split(":")[1]) }))
  const target = { scheme: "kafka", hosts, path: "", options: { groupProtocol: protocol } }
  const session = await kafkaDriver.connect(target, { timeoutMs: 20_000 })
  return { session, groups: session.groups, close: () => session.close() }
}

/** A name that no other test has. */
export function ownName(prefix: string): string {
  return `${prefix}-${randomBytes(5).toString("hex")}`
}

export function newTopic(
  session: Session,
  partitions: number,
  config: Readonly<Record<string, string>> = {},
): Promise<TopicDescription> {
  return session.catalog.createTopic(
    { stream: ownName("kafka"), topic: "records" },
    {
      partitions,
      durability: "written",
      offsetDurability: "written",
      deduplicationWindowMs: 0,
      deduplicateIds: false,
      ...(Object.keys(config).length === 0 ? {} : { native: { config } }),
    },
  )
}

/** Appends one batch of texts. */
export async function append(
  session: Session,
  topic: TopicDescription,
  { partition, texts }: { readonly partition: number; readonly texts: readonly string[] },
): Promise<void> {
  const writer = session.log.writer(topic, partition, { records: 10_000, bytes: 900_000 })
  for (const text of texts) {
    const payload = Buffer.from(text)
    writer.tryAppend({ payload, key: null, headers: Headers.empty, id: undefined, timestampMicros: undefined })
  }
  const nowMs = BigInt(Date.now())
  const batch = writer.seal({ id: nowMs << 80n, timestampMicros: nowMs * 1000n, resend: false })
  try {
    await session.log.append(batch, {})
  } finally {
    batch.release()
  }
}

/** Waits until something is there. */
export async function until<T>(
  what: string,
  look: () => T | undefined | Promise<T | undefined>,
  mostMs = 30_000,
): Promise<T> {
  const began = performance.now()
  for (;;) {
    const found = await look()
    if (found !== undefined) return found
    if (performance.now() - began > mostMs) throw new Error(`waited ${mostMs} ms in vain for ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

/** One record that was handled. */
export interface Handled {
  readonly partition: number
  readonly offset: bigint
  readonly by: string
}

/**
 * A member that reads what it is given, from what is stored or else the beginning, commits what it has handled with each poll, and hands
 * over in order.
 */
export class GroupReader {
  readonly membership: Membership
  readonly held: Map<number, Claim> = new Map()
  /** Why it ended. */
  ended: "no" | "left" | MillraceError = "no"
  readonly #session: Session
  readonly #owner: OffsetOwner
  readonly #topic: TopicDescription
  readonly #log: Handled[]
  readonly #reader
  readonly #positions = new Map<number, ReadPosition>()
  readonly #work: Promise<unknown>
  #leaving = false
  /** Polls and handing over take turns. */
  #turn: Promise<void> = Promise.resolve()

  static async join(
    { session, groups }: GroupSession,
    group: string,
    {
      topic,
      log,
      memberId,
      sessionTimeoutMs = 6000,
    }: {
      readonly topic: TopicDescription
      readonly log: Handled[]
      readonly memberId?: string
      readonly sessionTimeoutMs?: number
    },
  ): Promise<GroupReader> {
    const limits = { sessionTimeoutMs, rebalanceTimeoutMs: 10_000 }
    const membership = await groups.join(group, [topic], memberId === undefined ? limits : { ...limits, memberId })
    return new GroupReader(session, membership, { group, topic, log })
  }

  private constructor(
    session: Session,
    membership: Membership,
    { group, topic, log }: { readonly group: string; readonly topic: TopicDescription; readonly log: Handled[] },
  ) {
    this.#session = session
    this.membership = membership
    this.#owner = { kind: "group", name: group }
    this.#topic = topic
    this.#log = log
    this.#reader = session.log.openReader({ isolation: "committed" })
    this.#work = Promise.all([this.#follow(), this.#poll()])
    this.#work.catch(() => {})
  }

  get partitions(): number[] {
    return [...this.held.keys()].toSorted((one, other) => one - other)
  }

  async leave(): Promise<void> {
    await this.#inTurn(() => this.#commit([...this.#positions.keys()]))
    this.#leaving = true
    await this.membership.leave()
    await this.#reader.close()
    await this.#work
  }

  async #follow(): Promise<void> {
    try {
      for await (const { lost, revoked, assigned } of this.membership.changes) {
        await this.#inTurn(async () => {
          for (const { partition } of lost) this.#drop(partition)
          if (revoked.length > 0) {
            await this.#commit(revoked.map(({ partition }) => partition))
            for (const { partition } of revoked) this.#drop(partition)
            this.#reader.set([...this.#positions.values()])
            // The answer comes with a heartbeat: polls go on meanwhile.
            void this.membership.release(revoked)
          }
          if (assigned.length > 0) await this.#gain(assigned)
          this.#reader.set([...this.#positions.values()])
        })
      }
      this.ended = "left"
    } catch (error) {
      this.ended = error as MillraceError
    }
  }

  async #gain(claims: readonly Claim[]): Promise<void> {
    const stored = await this.#session.offsets.load(this.#owner, claims)
    for (const [nth, claim] of claims.entries()) {
      const place = stored[nth]
      if (place instanceof Error) throw place
      if (this.held.has(claim.partition)) throw new Error(`partition ${claim.partition} was assigned twice`)
      this.held.set(claim.partition, claim)
      const offset = (place as Position | undefined)?.offset ?? 0n
      this.#positions.set(claim.partition, { ...claim, offset, lineage: this.#topic.lineage, claim })
    }
  }

  #drop(partition: number): void {
    this.held.delete(partition)
    this.#positions.delete(partition)
  }

  async #poll(): Promise<void> {
    while (!this.#leaving && this.ended === "no") {
      const reads = await this.#reader
        .next({ maxRecords: 50, maxBytes: 65_536, minRecords: 1, maxWaitMs: 200 })
        .catch(async (error: MillraceError) => {
          if (this.#leaving) return []
          if (!error.retryable) throw error
          await new Promise((resolve) => setTimeout(resolve, 50))
          return []
        })
      await this.#inTurn(async () => {
        const moved: number[] = []
        for (const read of reads) {
          if (read.error !== undefined) throw read.error
          const position = this.#positions.get(read.partition)
          // What was read under an older claim is nobody's business here.
          if (position === undefined || read.claim !== position.claim) continue
          for (const batch of read.batches) {
            for (let index = batch.indexOf(position.offset); index < batch.count; index++) {
              const { partition } = read
              this.#log.push({ partition, offset: batch.offset(index), by: this.membership.memberId })
            }
          }
          this.#positions.set(read.partition, { ...position, offset: read.nextOffset })
          moved.push(read.partition)
        }
        await this.#commit(moved)
      })
    }
  }

  /** A refusal because the partition is gone is right; anything else is a failure. */
  async #commit(partitions: readonly number[]): Promise<void> {
    const entries = partitions.flatMap((partition) => this.#positions.get(partition) ?? [])
    if (entries.length === 0) return
    for (const outcome of await this.#session.offsets.store(this.#owner, entries as (ReadPosition & Position)[])) {
      if (outcome !== undefined && outcome.kind !== "not-assigned" && !outcome.retryable) throw outcome
    }
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(work)
    this.#turn = done.catch(() => {})
    return done
  }
}

/** Checks that every record of the partitions was handled, in order; answers how many were handled more than once. */
export function checkHandled(
  log: readonly Handled[],
  { partitions, records }: { readonly partitions: number; readonly records: number },
): number {
  let again = 0
  for (let partition = 0; partition < partitions; partition++) {
    const offsets = log.filter((entry) => entry.partition === partition).map(({ offset }) => Number(offset))
    let next = 0
    for (const offset of offsets) {
      if (offset > next) throw new Error(`partition ${partition}: record ${next} was passed over: ${offset} came`)
      if (offset < next) again++
      else next++
    }
    if (next !== records) throw new Error(`partition ${partition}: ${next} of ${records} records were handled`)
  }
  return again
}
