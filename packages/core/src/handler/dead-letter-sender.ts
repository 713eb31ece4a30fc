import { CancelledError, type Manifest, MillraceError, RecordTooLargeError } from "@millrace/contract"
import { backoffMs, type Clock, type Random } from "@millrace/runtime"
import { topicText } from "../client/names.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { PublishFailedError } from "../producer/publish-failed.ts"
import type { DeadLetterPolicy } from "./dead-letter.ts"
import { type Burial, deadLetterId, deadLetterRecord, errorTextBytes } from "./dead-letter-record.ts"
import { contextOf, placeText } from "./handler-failure.ts"
import { jittered } from "./retry.ts"

/** Tries of a dead letter whose failure may pass, beyond the retries of the connection. */
const mostSends = 5
const firstWaitMs = 500
const longestWaitMs = 10_000
/** Dead letters of one send. */
const mostTogether = 100

/** What the sender gets from the consumer. */
export interface DeadLetterSurroundings {
  readonly what: string
  readonly clock: Clock
  readonly random: Random
  readonly limits: Manifest["limits"]
  /** What the consumer decrypts with; absent when it leaves that to the client, which has nothing. */
  readonly encryptor: Encryptor | false | undefined
}

/** A dead letter that waits to be sent. */
interface Letter {
  readonly burial: Burial
  resolve(): void
  reject(error: unknown): void
}

/** Sends dead letters, and tries again what may pass. */
export class DeadLetterSender {
  readonly #policy: DeadLetterPolicy
  readonly #around: DeadLetterSurroundings
  /** The topic is there; asked for once. */
  #ensured: Promise<unknown> | undefined
  readonly #waits = new Set<() => void>()
  readonly #waiting: Letter[] = []
  #sending = false
  #closed = false

  constructor(policy: DeadLetterPolicy, around: DeadLetterSurroundings) {
    this.#policy = policy
    this.#around = around
  }

  /**
   * Settles once the dead letter is confirmed. Those that come while others are on their way go out together. A record that is too large
   * with all that is said of it is sent with less.
   * @throws MillraceError of the kind that the last try failed with; it may be stored where `outcome` is `unknown`
   */
  send(burial: Burial): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ burial, resolve, reject })
      if (!this.#sending) void this.#sendWaiting()
    })
  }

  /** Never rejects: each letter hears of its own end. */
  async #sendWaiting(): Promise<void> {
    this.#sending = true
    // What comes in the same turn comes along.
    await Promise.resolve()
    while (this.#waiting.length > 0 && !this.#closed) {
      const content = this.#waiting[0]?.burial.content
      const end = this.#waiting.findIndex((one) => one.burial.content !== content)
      const count = Math.min(mostTogether, end < 0 ? this.#waiting.length : end)
      await this.#sendTogether(this.#waiting.splice(0, count))
    }
    this.#sending = false
    if (this.#closed) this.#giveUp()
  }

  #giveUp(): void {
    for (const { reject } of this.#waiting.splice(0)) reject(this.#endedFirst())
  }

  #endedFirst(): CancelledError {
    return new CancelledError(`${this.#around.what}: the run ended before a dead letter was stored`)
  }

  async #sendTogether(letters: readonly Letter[]): Promise<void> {
    try {
      await this.#try(letters.map(({ burial }) => burial))
      for (const letter of letters) letter.resolve()
    } catch (error) {
      const left = unstored(letters, error)
      for (const letter of letters) if (!left.includes(letter)) letter.resolve()
      // By themselves they find out who is at fault. Nobody behind them waits for that.
      const told = letters.length === 1 ? error : undefined
      for (const { burial, resolve, reject } of left) this.#sendAlone(burial, told).then(resolve, reject)
    }
  }

  /** @param told What a try of it alone has failed with already. */
  async #sendAlone(burial: Burial, told: unknown): Promise<void> {
    let error = told
    let step = 0
    for (let failed = 0; ; ) {
      if (error !== undefined) {
        const cause = error instanceof PublishFailedError ? error.publishCause() : error
        if (cause instanceof RecordTooLargeError && step < errorTextBytes.length - 1) {
          step++
        } else {
          failed++
          if (this.#closed || failed >= mostSends || !this.#mayPass(cause)) throw this.#failure(burial, error)
          await this.#wait(jittered(backoffMs(failed - 1, firstWaitMs, longestWaitMs), this.#around.random))
        }
      }
      try {
        await this.#try([burial], step)
        return
      } catch (thrown) {
        error = thrown ?? new Error("the send failed without an error")
      }
    }
  }

  /** Waits end with CancelledError, nothing is tried again, and what has not begun to be sent is not sent. */
  close(): void {
    this.#closed = true
    for (const end of [...this.#waits]) end()
  }

  /** @param burials Of one kind of content. */
  async #try(burials: readonly Burial[], step = 0): Promise<void> {
    const { topic, createTopic, partitions, encryptor: own } = this.#policy
    if (createTopic) {
      this.#ensured ??= topic.ensure(partitions)
      try {
        await this.#ensured
      } catch (error) {
        this.#ensured = undefined
        throw error
      }
    }
    const { limits } = this.#around
    const records = burials.map((burial) => deadLetterRecord(burial, step, limits))
    // What did not decrypt goes on as it is: it is encrypted already, for the topic that it came from.
    const encryptor = burials[0]?.content === "message" ? (own ?? this.#around.encryptor) : false
    await topic.batch(records, encryptor === undefined ? {} : { encryptor })
  }

  #mayPass(cause: unknown): boolean {
    if (!(cause instanceof MillraceError)) return false
    if (cause.kind === "not-found" && this.#policy.createTopic) {
      this.#ensured = undefined
      return true
    }
    return cause.retryable || cause.outcome === "unknown"
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        timer.cancel()
        this.#waits.delete(end)
        reject(this.#endedFirst())
      }
      const timer = this.#around.clock.setTimer(ms, () => {
        this.#waits.delete(end)
        resolve()
      })
      this.#waits.add(end)
    })
  }

  #failure({ place }: Burial, error: unknown): MillraceError {
    const { stream, name } = this.#policy.topic
    const known = error instanceof MillraceError ? error : undefined
    const why = error instanceof Error ? error.message : String(error)
    return new MillraceError(
      known?.kind ?? "handler",
      `${this.#around.what}: ${placeText(place)} could not be sent to dead-letter topic "${topicText({ stream, topic: name })}": ${why}`,
      {
        cause: error,
        retryable: known?.retryable ?? false,
        outcome: known?.outcome ?? "rejected",
        context: contextOf(place),
      },
    )
  }
}

/** Those of a send that failed which are not known to be stored. */
function unstored(letters: readonly Letter[], error: unknown): readonly Letter[] {
  if (!(error instanceof PublishFailedError) || error.committed.length === 0) return letters
  const open = new Set(error.unconfirmed.map(({ id }) => id))
  return letters.filter(({ burial }) => {
    const id = deadLetterId(burial)
    return id === undefined || open.has(id)
  })
}
