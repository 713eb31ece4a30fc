import type {
  AssignmentChange,
  Claim,
  JoinOptions,
  Membership,
  MillraceError,
  OffsetEntry,
  Session,
  TopicDescription,
  TopicName,
} from "@millrace/contract"
import { settlesWithin, until } from "./deadline.ts"

const patientJoin: JoinOptions = { sessionTimeoutMs: 10_000, rebalanceTimeoutMs: 10_000 }

/** A member of a group that keeps account of what it was told, and hands over what it must, at once or when the test says so. */
export class Member {
  readonly membership: Membership
  /** What it holds, by partition. */
  readonly held: Map<number, Claim> = new Map()
  /** What it was asked to hand over and has not yet. */
  readonly asked: Map<number, Claim> = new Map()
  readonly changes: AssignmentChange[] = []
  /** What ended the changes: nothing yet, a leave, or the error. */
  ended: "no" | "left" | MillraceError = "no"
  readonly #session: Session
  readonly #releases: "at once" | "by hand"
  readonly #ended: Promise<void>

  static async join(
    session: Session,
    group: string,
    topics: readonly TopicName[],
    options: Partial<JoinOptions> & { readonly releases?: "at once" | "by hand" } = {},
  ): Promise<Member> {
    const { releases = "at once", ...join } = options
    const membership = await settlesWithin("join", session.groups.join(group, topics, { ...patientJoin, ...join }))
    return new Member(session, membership, releases)
  }

  private constructor(session: Session, membership: Membership, releases: "at once" | "by hand") {
    this.#session = session
    this.membership = membership
    this.#releases = releases
    this.#ended = this.#follow()
  }

  get partitions(): number[] {
    return [...this.held.keys()].toSorted((one, other) => one - other)
  }

  /** Waits until it holds exactly these partitions. */
  async holds(partitions: readonly number[]): Promise<void> {
    await this.holdsThat(`exactly ${partitions.join(", ")}`, (held) => held.join() === partitions.join())
  }

  async holdsThat(what: string, check: (held: readonly number[]) => boolean): Promise<void> {
    await until(`member ${this.membership.memberId} to hold ${what} (it holds ${this.partitions.join(", ")})`, () =>
      check(this.partitions) ? true : undefined,
    )
  }

  /** Waits until it was asked for a partition. */
  async askedFor(partition: number): Promise<Claim> {
    return until(`a revocation of partition ${partition}`, () => this.asked.get(partition))
  }

  async release(claims: readonly Claim[]): Promise<void> {
    for (const claim of claims) {
      this.held.delete(claim.partition)
      this.asked.delete(claim.partition)
    }
    await this.membership.release(claims)
  }

  claim(partition: number): Claim {
    const claim = this.held.get(partition)
    if (claim === undefined) throw new Error(`partition ${partition} is not held, only ${this.partitions.join(", ")}`)
    return claim
  }

  /** Commits the next offset of a partition under a claim; by default the one it holds. */
  async commit(
    group: string,
    topic: TopicDescription,
    partition: number,
    offset: bigint,
    claim: Claim = this.claim(partition),
  ): Promise<MillraceError | undefined> {
    const entry: OffsetEntry = { ...claim, offset, lineage: topic.lineage, claim }
    const [outcome] = await this.#session.offsets.store({ kind: "group", name: group }, [entry])
    return outcome
  }

  async leave(): Promise<void> {
    await settlesWithin("leave", this.membership.leave())
    await settlesWithin("the end of the changes after a leave", this.#ended)
  }

  async #follow(): Promise<void> {
    try {
      for await (const change of this.membership.changes) {
        this.changes.push(change)
        for (const claim of change.assigned) {
          if (this.held.has(claim.partition)) throw new Error(`partition ${claim.partition} was assigned twice`)
          this.held.set(claim.partition, claim)
        }
        for (const claim of change.lost) {
          this.held.delete(claim.partition)
          this.asked.delete(claim.partition)
        }
        for (const claim of change.revoked) this.asked.set(claim.partition, claim)
        if (this.#releases === "at once" && change.revoked.length > 0) await this.release(change.revoked)
      }
      this.ended = "left"
    } catch (error) {
      this.ended = error as MillraceError
    }
  }
}
