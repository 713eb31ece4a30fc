import { type AppendResult, MillraceError, TimeoutError } from "@millrace/contract"
import type { Timer } from "@millrace/runtime"
import type { Msg } from "@nats-io/transport-node"
import { jetstreamError } from "./api-error.ts"
import type { Connection } from "./connection.ts"
import { type IngestPrefix, ingestEnd, ingestFlow, ingestFrames, ingestPrefix } from "./frames.ts"
import { type IngestCommand, type IngestEvent, type IngestJob, IngestMachine } from "./ingest.machine.ts"
import type { IngestAnswers } from "./ingest-answers.ts"
import type { NatsSealedBatch } from "./sealed-batch.ts"

/** How long a rest that is smaller than a step waits for more records before the ingest is ended, in ms. */
const holdMs = 1

/** A batch that is appended by fast ingest. */
export interface IngestAppend extends IngestJob {
  readonly batch: NatsSealedBatch
  readonly resolve: (result: AppendResult) => void
  readonly reject: (error: MillraceError) => void
}

export interface IngestLaneParts {
  readonly connection: Connection
  readonly answers: IngestAnswers
  readonly subject: string
  /** Called when nothing is under way any more. */
  readonly idle: () => void
  /** Nobody listens to the subject: says why. */
  readonly explainSilence: () => Promise<MillraceError>
}

/** Appends batches of one partition by fast ingest: many under way at once, confirmed as stored, without offsets. */
export class IngestLane {
  readonly #parts: IngestLaneParts
  readonly #machine = new IngestMachine<IngestAppend>(ingestFlow)
  #prefix: IngestPrefix | undefined
  #endAnswers: (() => void) | undefined
  #hold: Timer | undefined
  #watch: Timer | undefined
  #progressMs = 0
  /** Failed in this turn: what the caller appends before it has learned of it must not pass what failed. */
  #failed: { readonly error: MillraceError; readonly over: Timer } | undefined

  constructor(parts: IngestLaneParts) {
    this.#parts = parts
  }

  get busy(): boolean {
    return this.#machine.busy
  }

  append(job: IngestAppend): void {
    const { clock } = this.#parts.connection
    if (this.#failed !== undefined) {
      const { error } = this.#failed
      const text = `not sent, because an earlier batch of the partition failed: ${error.message}`
      job.reject(new MillraceError("connection", text, { cause: error }))
      return
    }
    this.#progressMs = clock.monotonicMs()
    this.#handle({ type: "append", job, nowMs: this.#progressMs })
    this.#watch ??= this.#watchFor(this.#parts.connection.requestTimeoutMs)
  }

  /** No answer will come any more. */
  cut(error: MillraceError): void {
    this.#handle({ type: "cut", error })
  }

  /** The server takes no message of this lane: none that is not confirmed was stored. */
  refuse(error: MillraceError): void {
    if (this.#machine.busy) this.#handle({ type: "ended", sequence: 1, error })
  }

  /** Ends the ingest on the server, and all timers. */
  close(error: MillraceError): void {
    if (!this.#machine.busy && this.#machine.live) this.#end(Number.MAX_SAFE_INTEGER)
    this.cut(error)
    this.#watch?.cancel()
    this.#watch = undefined
    this.#failed?.over.cancel()
    this.#failed = undefined
  }

  #handle(event: IngestEvent<IngestAppend>): void {
    const wasBusy = this.#machine.busy
    for (const command of this.#machine.handle(event)) this.#run(command)
    if (wasBusy && !this.#machine.busy) {
      this.#watch?.cancel()
      this.#watch = undefined
      this.#parts.idle()
    }
  }

  #run(command: IngestCommand<IngestAppend>): void {
    switch (command.type) {
      case "send":
        this.#send(command)
        return
      case "end":
        this.#end(command.sequence)
        return
      case "renew":
        this.#renew()
        return
      case "hold":
        this.#hold ??= this.#parts.connection.clock.setTimer(holdMs, () => {
          this.#hold = undefined
          this.#handle({ type: "quiet" })
        })
        return
      case "confirm":
        command.job.resolve({ contiguous: false, duplicates: 0 })
        return
      case "fail":
        this.#failed ??= {
          error: command.error,
          over: this.#parts.connection.clock.setTimer(0, () => {
            this.#failed = undefined
          }),
        }
        command.job.reject(command.error)
        return
    }
  }

  #send({ job, from, count, sequence, commit }: Extract<IngestCommand<IngestAppend>, { readonly type: "send" }>): void {
    const { connection, subject, answers } = this.#parts
    if (this.#prefix === undefined) {
      const begun = answers.begin({ answered: (message, answered) => this.#answered(message, answered) })
      this.#prefix = ingestPrefix(subject, begun.answers)
      this.#endAnswers = begun.end
    }
    connection.wire.send(ingestFrames(job.batch, { from, count }, { prefix: this.#prefix, sequence, commit }))
  }

  #end(sequence: number): void {
    if (this.#prefix !== undefined && this.#parts.connection.connected) {
      this.#parts.connection.wire.send(ingestEnd(this.#prefix, sequence))
    }
  }

  #renew(): void {
    this.#endAnswers?.()
    this.#endAnswers = undefined
    this.#prefix = undefined
    this.#hold?.cancel()
    this.#hold = undefined
  }

  #answered(message: Msg, sequence: number): void {
    this.#progressMs = this.#parts.connection.clock.monotonicMs()
    if (message.data.length === 0) {
      this.#silent(sequence)
      return
    }
    const event = answerOf(message.data, sequence, this.#what)
    if (event !== undefined) this.#handle(event)
  }

  /** The subject has no listener: the topic is gone, or its stream has no leader. */
  #silent(sequence: number): void {
    // Further answers to this ingest say the same.
    this.#endAnswers?.()
    const ingest = this.#prefix
    void this.#parts.explainSilence().then((error) => {
      // Meanwhile the ingest may be over, and what another one has sent is stored or not for reasons of its own.
      if (this.#prefix === ingest) this.#handle({ type: "ended", sequence, error })
    })
  }

  /** Fails what is under way when nothing was answered for as long as a request may take. */
  #watchFor(waitMs: number): Timer {
    const { clock, requestTimeoutMs } = this.#parts.connection
    return clock.setTimer(waitMs, () => {
      this.#watch = undefined
      if (!this.#machine.busy) return
      const leftMs = this.#progressMs + requestTimeoutMs - clock.monotonicMs()
      if (leftMs > 0) {
        this.#watch = this.#watchFor(leftMs)
        return
      }
      this.cut(new TimeoutError(`${this.#what}: NATS confirmed nothing within ${requestTimeoutMs} ms`))
    })
  }

  get #what(): string {
    const { subject } = this.#parts
    return `publishing to ${subject}`
  }
}

interface Answer {
  readonly type?: "ack" | "gap" | "err"
  readonly seq?: number
  readonly msgs?: number
  readonly batch?: string
  readonly count?: number
  readonly error?: { readonly code?: number; readonly err_code?: number; readonly description?: string }
}

/** What an answer means; `undefined` for one that says nothing. */
function answerOf(data: Uint8Array, sequence: number, what: string): IngestEvent<IngestAppend> | undefined {
  let answer: Answer
  try {
    answer = JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("utf8"))
  } catch (cause) {
    return { type: "cut", error: new MillraceError("protocol", `${what}: NATS answered what is no JSON`, { cause }) }
  }
  const { type, seq, msgs, count, error } = answer ?? {}
  if (type === "ack" && isCount(seq) && isCount(msgs)) return { type: "ack", sequence: seq, step: msgs }
  if (type === "gap") return { type: "gap" }
  if (type === "err" && error !== undefined) {
    return { type: "refused", sequence: isCount(seq) ? seq : sequence, error: jetstreamError(error, what) }
  }
  if (error !== undefined) return { type: "ended", sequence, error: jetstreamError(error, what) }
  if (isCount(count)) return { type: "done", count }
  return {
    type: "cut",
    error: new MillraceError("protocol", `${what}: NATS answered nothing that is known to an ingest`),
  }
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0
}
