/** Group records in the bucket: read as a whole, changed by compare-and-set. */
import { MillraceError } from "@millrace/contract"
import { backoffMs } from "@millrace/runtime"
import type { Connection } from "./connection.ts"
import { formatGroup, type GroupRecord, parseGroup } from "./groups-record.ts"
import type { OffsetsBucket } from "./offsets-bucket.ts"
import { groupKey, stirSubject } from "./offsets-key.ts"

/** How often a change is tried when others change the record at the same time. */
const mostAttempts = 20
/** Pauses between attempts: the first, and the longest, in ms; each is shortened by chance, so that rivals part. */
const firstPauseMs = 5
const longestPauseMs = 250

/** A record and its place in the bucket; without a record the group does not exist. */
export interface KeptGroup {
  readonly record: GroupRecord | undefined
  readonly revision: number
}

export class GroupStore {
  readonly #connection: Connection
  readonly #bucket: OffsetsBucket
  /** The newest form of each group that this session uses. */
  readonly #known = new Map<string, { readonly id: string; readonly revision: number }>()

  constructor(connection: Connection, bucket: OffsetsBucket) {
    this.#connection = connection
    this.#bucket = bucket
  }

  /**
   * The present record.
   * @throws CorruptionError, StorageError for a newer format; MillraceError (not-leader, retryable) when the answer is older than one that
   *   this session has had: a server that was the leader may not know yet that it is not
   */
  async read(group: string): Promise<KeptGroup> {
    // What others of this session learn meanwhile is no measure: this answer may be on its way already.
    const before = this.#known.get(group)
    const { revision, value } = await this.#bucket.get(groupKey(group))
    // An empty value is what a deleted group leaves.
    const record = value === undefined || value.length === 0 ? undefined : parseGroup(group, value)
    if (record !== undefined && before?.id === record.id && revision < before.revision) {
      throw new MillraceError(
        "not-leader",
        `the record of group ${JSON.stringify(group)} came in an older form than before`,
        {
          context: { group },
        },
      )
    }
    this.#learn(group, { record, revision })
    return { record, revision }
  }

  /**
   * Applies a change to the present record, and again to a newer one when another write came between. The change answers the same
   * record when there is nothing to do, `undefined` to delete the group, and may throw, which ends the attempts.
   * @throws MillraceError (throttled, retryable) when others are always faster; outcome `unknown` when an acknowledgement got lost
   */
  async change(
    group: string,
    change: (record: GroupRecord | undefined) => GroupRecord | undefined,
  ): Promise<KeptGroup> {
    for (let attempt = 0; attempt < mostAttempts; attempt++) {
      if (attempt > 0) await this.#pause(attempt)
      const kept = await this.read(group)
      const record = change(kept.record)
      if (record === kept.record) return kept
      const bytes = record === undefined ? new Uint8Array(0) : formatGroup(record)
      const revision = await this.#bucket.put(groupKey(group), bytes, { ifRevision: kept.revision })
      if (revision === undefined) continue
      this.#learn(group, { record, revision })
      this.stir(group)
      return { record, revision }
    }
    throw new MillraceError(
      "throttled",
      `group ${JSON.stringify(group)} is changed by others all the time: ${mostAttempts} attempts failed`,
      {
        context: { group },
      },
    )
  }

  /** Tells the members that they should look. */
  stir(group: string): void {
    if (this.#connection.connected)
      this.#connection.wire.publish(stirSubject(group), "", { payload: new Uint8Array(0) })
  }

  #learn(group: string, { record, revision }: KeptGroup): void {
    const known = this.#known.get(group)
    if (record === undefined) this.#known.delete(group)
    else if (known?.id !== record.id || known.revision < revision) this.#known.set(group, { id: record.id, revision })
  }

  #pause(attempt: number): Promise<void> {
    const { clock, random } = this.#connection
    const longestMs = backoffMs(attempt - 1, firstPauseMs, longestPauseMs)
    return new Promise((resolve) => {
      clock.setTimer(longestMs * (random.uint32() / 2 ** 32), resolve)
    })
  }
}
