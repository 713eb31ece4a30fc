/**
 * One partition's fast ingest (ADR-50 of NATS), without the connection: which records are sent when, and what the answers confirm.
 *
 *     open        messages are sent, up to three steps ahead of the last confirmation
 *     committing  the last message ended the ingest; everything is confirmed with the final answer, and the next ingest may begin
 *     ending      the server refused a message or missed one: nothing more is sent, the final answer tells how far it came
 *
 * |             | append | ack          | done          | refused, gap | ended, cut | quiet      |
 * | open        | send   | confirm,send | fail the rest | → ending     | fail all   | → committing |
 * | committing  | wait   | confirm      | → open        | → ending     | fail all   | –          |
 * | ending      | wait   | confirm      | fail the rest | –            | fail all   | –          |
 *
 * The server confirms each `step` messages. A rest that is smaller than a step is confirmed only by ending the ingest, so what is sent
 * last in a quiet lane carries the commit; a rest behind a confirmed step is ended after a short time without new records. One ingest is
 * under way at a time: a second one would be stored even where the first had failed, out of order.
 */
import { ConnectionError, MillraceError, type Outcome } from "@millrace/contract"

/** Steps that may be sent ahead of the last confirmation. ADR-50 allows 1 to 3. */
const stepsAhead = 3

/** An ingest without traffic for longer is left to the server, which forgets it after 10 s. */
const freshMs = 5_000

/** A batch of records on its way. The machine knows only how many they are. */
export interface IngestJob {
  readonly count: number
}

export type IngestEvent<J extends IngestJob> =
  | { readonly type: "append"; readonly job: J; readonly nowMs: number }
  /** Everything up to `sequence` is stored, and the next such answer comes `step` messages later. */
  | { readonly type: "ack"; readonly sequence: number; readonly step: number }
  /** The ingest is over: its first `count` messages are stored. */
  | { readonly type: "done"; readonly count: number }
  /** The message was not stored; the final answer follows. */
  | { readonly type: "refused"; readonly sequence: number; readonly error: MillraceError }
  /** A message did not reach the server; the final answer follows. */
  | { readonly type: "gap" }
  /** The server does not know the ingest, or did not begin it: this message was not stored. */
  | { readonly type: "ended"; readonly sequence: number; readonly error: MillraceError }
  /** No answer will come. */
  | { readonly type: "cut"; readonly error: MillraceError }
  /** The time of `hold` is over. */
  | { readonly type: "quiet" }

export type IngestCommand<J extends IngestJob> =
  /** Sends records `from` to `from` + `count` − 1 of a job as messages from `sequence` on; the last one commits, or not. */
  | {
      readonly type: "send"
      readonly job: J
      readonly from: number
      readonly count: number
      readonly sequence: number
      readonly commit: boolean
    }
  /** Ends the ingest with a message that is not stored. */
  | { readonly type: "end"; readonly sequence: number }
  /** The ingest is over; what is sent next belongs to a new one. */
  | { readonly type: "renew" }
  | { readonly type: "hold" }
  | { readonly type: "confirm"; readonly job: J }
  | { readonly type: "fail"; readonly job: J; readonly error: MillraceError }

interface Entry<J> {
  readonly job: J
  /** The messages that are the job's records, from 1 on. */
  first: number
  last: number
}

export class IngestMachine<J extends IngestJob> {
  readonly #longestStep: number
  #state: "open" | "committing" | "ending" = "open"
  #entries: Entry<J>[] = []
  #given = 0
  #sent = 0
  #acked = 0
  #step: number
  #sentMs = 0
  #refused: { readonly sequence: number; readonly error: MillraceError } | undefined

  /** @param longestStep Messages between two confirmations, as they are asked for. */
  constructor(longestStep: number) {
    this.#longestStep = longestStep
    this.#step = longestStep
  }

  /** Whether a job is neither confirmed nor failed. */
  get busy(): boolean {
    return this.#entries.length > 0
  }

  /** Whether the server has an ingest that was begun and not ended. */
  get live(): boolean {
    return this.#sent > 0
  }

  handle(event: IngestEvent<J>): IngestCommand<J>[] {
    const commands: IngestCommand<J>[] = []
    switch (event.type) {
      case "append":
        this.#append(event, commands)
        break
      case "ack":
        this.#ack(event, commands)
        break
      case "done":
        this.#done(event.count, commands)
        break
      case "refused":
        this.#refused ??= { sequence: event.sequence, error: event.error }
        this.#state = "ending"
        break
      case "gap":
        this.#state = "ending"
        break
      case "ended":
        this.#end(commands, (entry) => this.#endedError(entry, event))
        break
      case "cut":
        this.#end(commands, (entry) => withOutcome(event.error, entry.first > this.#sent ? "rejected" : "unknown"))
        break
      case "quiet":
        if (this.#state === "open" && this.#hasShortRest()) this.#commitEmpty(commands)
        break
    }
    return commands
  }

  #append({ job, nowMs }: { readonly job: J; readonly nowMs: number }, commands: IngestCommand<J>[]): void {
    if (this.#state === "open" && !this.busy && this.#sent > 0 && nowMs - this.#sentMs > freshMs) {
      commands.push({ type: "end", sequence: this.#sent + 1 })
      this.#renew(commands)
    }
    this.#entries.push({ job, first: this.#given + 1, last: this.#given + job.count })
    this.#given += job.count
    this.#sentMs = nowMs
    this.#pump(commands)
  }

  #ack({ sequence, step }: { readonly sequence: number; readonly step: number }, commands: IngestCommand<J>[]): void {
    if (step >= 1) this.#step = Math.min(step, this.#longestStep)
    if (sequence > this.#acked) this.#acked = Math.min(sequence, this.#sent)
    this.#confirm(this.#acked, commands)
    this.#pump(commands)
  }

  #done(count: number, commands: IngestCommand<J>[]): void {
    this.#confirm(Math.min(count, this.#sent), commands)
    const sent = this.#sent
    if (this.#state === "committing" && count >= sent) {
      for (const entry of this.#entries) {
        entry.first -= sent
        entry.last -= sent
      }
      this.#given -= sent
      this.#renew(commands)
      this.#pump(commands)
      return
    }
    const refused = this.#refused
    const gap = new ConnectionError(`NATS missed records of an ingest: it has ${count} of the ${sent} that were sent`)
    this.#end(commands, (entry) => {
      if (entry.first > sent) return notSent(refused?.error ?? gap)
      if (refused === undefined) return inDoubt(gap)
      if (entry.first === refused.sequence) return refused.error
      return entry.first > refused.sequence ? notSent(refused.error) : inDoubt(refused.error)
    })
  }

  #endedError(
    entry: Entry<J>,
    { sequence, error }: { readonly sequence: number; readonly error: MillraceError },
  ): MillraceError {
    if (entry.first > this.#sent) return notSent(error)
    // All before this message is confirmed, and nothing behind it can have been stored.
    if (sequence <= this.#acked + 1) {
      if (entry.first > this.#acked) return entry === this.#entries[0] ? error : notSent(error)
    }
    return inDoubt(error)
  }

  #confirm(sequence: number, commands: IngestCommand<J>[]): void {
    let confirmed = 0
    for (const { job, last } of this.#entries) {
      if (last > sequence) break
      commands.push({ type: "confirm", job })
      confirmed++
    }
    if (confirmed > 0) this.#entries = this.#entries.slice(confirmed)
  }

  /** Ends the ingest and everything that waited for it or behind it: what came later must not be stored before it. */
  #end(commands: IngestCommand<J>[], errorOf: (entry: Entry<J>) => MillraceError): void {
    for (const entry of this.#entries) commands.push({ type: "fail", job: entry.job, error: errorOf(entry) })
    this.#entries = []
    this.#given = 0
    this.#renew(commands)
  }

  #renew(commands: IngestCommand<J>[]): void {
    this.#state = "open"
    this.#sent = 0
    this.#acked = 0
    this.#step = this.#longestStep
    this.#refused = undefined
    if (this.#entries.length === 0) this.#given = 0
    commands.push({ type: "renew" })
  }

  #pump(commands: IngestCommand<J>[]): void {
    if (this.#state !== "open") return
    const until = Math.min(this.#given, this.#acked + this.#step * stepsAhead)
    if (until <= this.#sent) {
      if (this.#hasShortRest()) commands.push({ type: "hold" })
      return
    }
    // No step will be full: only the end of the ingest confirms the rest.
    const commit = until === this.#given && until - this.#acked < this.#step
    for (const { job, first, last } of this.#entries) {
      if (last <= this.#sent) continue
      if (first > until) break
      const sequence = Math.max(first, this.#sent + 1)
      const end = Math.min(last, until)
      commands.push({
        type: "send",
        job,
        from: sequence - first,
        count: end - sequence + 1,
        sequence,
        commit: commit && end === until,
      })
    }
    this.#sent = until
    if (commit) this.#state = "committing"
  }

  /** Everything is sent, and what is not confirmed is less than a step. */
  #hasShortRest(): boolean {
    return this.#sent === this.#given && this.#sent > this.#acked && this.#sent - this.#acked < this.#step
  }

  #commitEmpty(commands: IngestCommand<J>[]): void {
    this.#state = "committing"
    commands.push({ type: "end", sequence: this.#sent + 1 })
  }
}

/** The batch was sent, at least in part, and nothing tells whether it is stored. */
function inDoubt(error: MillraceError): MillraceError {
  return withOutcome(error, "unknown")
}

/** The same failure for a batch that it left in another state. */
function withOutcome(error: MillraceError, outcome: Outcome): MillraceError {
  if (error.outcome === outcome) return error
  const { kind, message, retryable, context } = error
  return new MillraceError(kind, message, { retryable, outcome, context, cause: error })
}

/** The batch was not stored, because one before it was not. */
function notSent(error: MillraceError): MillraceError {
  return new ConnectionError(`not sent, because an earlier batch of the partition failed: ${error.message}`, {
    cause: error,
  })
}
