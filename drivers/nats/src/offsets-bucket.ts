/**
 * Where offsets and groups are kept: a key-value bucket in the form of ADR-8, so that `nats kv ls millrace` shows it. Reads go to the
 * stream's leader (`STREAM.MSG.GET`, not a direct get), so that what was written is seen at once by whoever asks next.
 */
import { MillraceError, NotFoundError } from "@millrace/contract"
import { apiCode } from "./api-error.ts"
import { type Connection, parseApiReply } from "./connection.ts"

/** The bucket's name. Stored: never rename. */
const bucketName = "millrace"
const streamName = `KV_${bucketName}`
const subjectPrefix = `$KV.${bucketName}.`

/** Copies of the bucket in a cluster; one where that many are not to be had. */
const clusterReplicas = 3

/** Another write came between: one that is stored, or (10164, in a cluster) one that is being stored. */
const conflicts: ReadonlySet<unknown> = new Set([apiCode.wrongLastSequence, 10164])

/** A value and the place in the bucket's stream that it has. */
export interface BucketEntry {
  readonly revision: number
  /** `undefined` where the last that was written is a deletion. */
  readonly value: Uint8Array | undefined
}

/** The bucket of all sessions on one account. It is made when something is first written. */
export class OffsetsBucket {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  /** The present value; revision 0 where there is none. */
  async get(key: string): Promise<BucketEntry> {
    try {
      const body = { last_by_subj: subjectPrefix + key }
      const options = { idempotent: true, what: `reading ${key} of the bucket ${bucketName}` }
      const { message } = await this.#connection.api<StoredAnswer>(`STREAM.MSG.GET.${streamName}`, body, options)
      const deleted =
        message.hdrs !== undefined && /KV-Operation:/i.test(Buffer.from(message.hdrs, "base64").toString())
      return { revision: message.seq, value: deleted ? undefined : Buffer.from(message.data ?? "", "base64") }
    } catch (error) {
      // Neither the value nor the bucket need be there.
      if (error instanceof NotFoundError) return { revision: 0, value: undefined }
      throw error
    }
  }

  /**
   * Writes a value; with `ifRevision` only when nothing was written since (0: never). Answers its revision, or `undefined` when
   * something was.
   * @throws TimeoutError and ConnectionError, outcome `unknown`; MillraceError (not-leader, retryable) while nobody takes writes
   */
  async put(
    key: string,
    value: Uint8Array,
    options: { readonly ifRevision?: number } = {},
  ): Promise<number | undefined> {
    const { ifRevision } = options
    const headers =
      ifRevision === undefined
        ? undefined
        : Buffer.from(`NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: ${ifRevision}\r\n\r\n`)
    const write = async (): Promise<number> => {
      const what = `writing ${key} of the bucket ${bucketName}`
      const request = headers === undefined ? { what } : { what, headers }
      const reply = await this.#connection.request(subjectPrefix + key, value, request)
      return parseApiReply<{ readonly seq: number }>(reply.data, what).seq
    }
    try {
      try {
        return await write()
      } catch (error) {
        if (!(error instanceof NotFoundError)) throw error
        await this.#create()
        return await write().catch((again: unknown) => {
          throw again instanceof NotFoundError ? silent(again) : again
        })
      }
    } catch (error) {
      if (error instanceof MillraceError && conflicts.has(error.context.errCode)) return undefined
      throw error
    }
  }

  /** Sends a value that nobody waits for. It may get lost. */
  send(key: string, value: Uint8Array): void {
    this.#connection.wire.publish(subjectPrefix + key, "", { payload: value })
  }

  /** The subject on which everybody hears what is written to keys of this form (with `*` for one token). */
  subject(keys: string): string {
    return subjectPrefix + keys
  }

  /** Removes every value whose key is of this form (with `*` for one token and `>` for all that follow). */
  async purge(keys: string): Promise<void> {
    try {
      await this.#connection.api(`STREAM.PURGE.${streamName}`, { filter: subjectPrefix + keys })
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error
    }
  }

  async #create(): Promise<void> {
    const clustered = (this.#connection.nc.info as { readonly cluster?: string } | undefined)?.cluster !== undefined
    try {
      await this.#createWith(clustered ? clusterReplicas : 1)
    } catch (error) {
      if (!clustered || !(error instanceof MillraceError) || error.outcome === "unknown") throw error
      await this.#createWith(1)
    }
  }

  async #createWith(replicas: number): Promise<void> {
    try {
      await this.#connection.api(`STREAM.CREATE.${streamName}`, {
        name: streamName,
        description: "offsets and groups of Millrace",
        subjects: [`${subjectPrefix}>`],
        storage: "file",
        num_replicas: replicas,
        retention: "limits",
        max_msgs_per_subject: 1,
        max_msgs: -1,
        max_bytes: -1,
        max_age: 0,
        max_msg_size: -1,
        discard: "new",
        duplicate_window: 120e9,
        allow_rollup_hdrs: true,
        deny_delete: true,
        deny_purge: false,
        allow_direct: true,
      })
    } catch (error) {
      // Somebody else made it meanwhile, perhaps with other settings.
      if (error instanceof MillraceError && error.kind === "already-exists") return
      throw error
    }
  }
}

/** The bucket is there, and yet nobody listens: its stream has no leader at present. */
function silent(cause: NotFoundError): MillraceError {
  return new MillraceError("not-leader", `the bucket ${bucketName} does not answer at present: ${cause.message}`, {
    cause,
  })
}

interface StoredAnswer {
  readonly message: { readonly seq: number; readonly data?: string; readonly hdrs?: string }
}
