import { type MillraceError, type OffsetEntry, RecordTooLargeError, TransactionAbortedError } from "@millrace/contract"
import { backoffMs } from "@millrace/runtime"
import type { ClientContext } from "../client/context.ts"
import type { RecordSealer } from "../encryption/encryptor.ts"
import { sealerOf, sealOne } from "../encryption/sealing.ts"
import type { DeadLetterPolicy } from "../handler/dead-letter.ts"
import { type Burial, deadLetterRecord, errorTextBytes } from "../handler/dead-letter-record.ts"
import { jittered } from "../handler/retry.ts"
import type { Destination } from "../producer/lane.ts"
import { balanced } from "../producer/routing.ts"
import { millraceError } from "../producer/sender.ts"
import { StatisticsCounter } from "../producer/statistics.ts"
import { prepareRecord } from "../record/outgoing-record.ts"
import type { BatchOutput, ProcessBatch } from "./process-batch.ts"
import type { ProcessSettings } from "./process-options.ts"
import { pause } from "./transaction-asking.ts"
import { type OpenTransaction, TransactionControl } from "./transaction-control.ts"
import { accepted } from "./transaction-sender.ts"

/** Why a batch was not stored: nothing of it is. */
export interface SettleFailure {
  readonly error: MillraceError
  /** Whether the same messages may be stored by another try, by what they make now. */
  readonly mayPass: boolean
  /** The output that the backend cannot take. */
  readonly culprit: BatchOutput | undefined
}

/** Beginnings of an incarnation that may fail in a row, before the processor gives up. */
const mostRecoveries = 20
const firstWaitMs = 250
const longestWaitMs = 30_000

/** What may be another time: somebody else's doing, or the weather. */
const passing: ReadonlySet<string> = new Set(["transaction-aborted", "not-assigned", "history-changed", "fenced"])

/** Stores one batch after the other, each in a transaction, and finds out what became of one that nobody has answered for. */
export class BatchSettler {
  readonly #client: ClientContext
  readonly #settings: ProcessSettings
  readonly #statistics: StatisticsCounter
  readonly #sealer: RecordSealer | undefined
  readonly #gone = new AbortController()
  #control: TransactionControl
  #ensured: Promise<unknown> | undefined

  constructor(client: ClientContext, settings: ProcessSettings) {
    this.#client = client
    this.#settings = settings
    this.#statistics = new StatisticsCounter(client.clock)
    this.#control = new TransactionControl(client, settings.producer, this.#statistics)
    const { onFailure, consumer } = settings
    this.#sealer =
      typeof onFailure === "string" ? undefined : sealerOf(client, onFailure.encryptor ?? consumer.encryptor)
  }

  /** Fences what an earlier incarnation has left, and aborts it. */
  async open(): Promise<void> {
    await this.#begin()
  }

  /** @returns why it was not stored; `undefined` once it is, whatever happened on the way */
  async settle(batch: ProcessBatch): Promise<SettleFailure | undefined> {
    let open: OpenTransaction | undefined
    let culprit: BatchOutput | undefined
    try {
      open = await this.#control.begin()
      // On its way beside the records: the commit waits for both, and fails with either.
      const enlisted = batch.offsets === undefined ? accepted : this.#control.sendOffsets(open, batch.offsets)
      enlisted.catch(() => {})
      for (const output of batch.outputs) {
        culprit = output
        const sent = output.burial === undefined ? this.#send(open, output) : this.#bury(open, output.burial)
        if (sent !== accepted) await sent
      }
      culprit = undefined
      await this.#control.commit(open)
      return undefined
    } catch (thrown) {
      // One that the transaction held already is of some output before.
      if (thrown instanceof TransactionAbortedError) culprit = undefined
      const error = reasonOf(millraceError(thrown))
      const mayPass = passing.has(error.kind) || error.retryable || error.outcome === "unknown"
      try {
        if (await this.#recover(open, batch)) return undefined
      } catch (failed) {
        return { error: millraceError(failed), mayPass: false, culprit: undefined }
      }
      return { error, mayPass, culprit: mayPass ? undefined : culprit }
    }
  }

  /** Ends it: nothing may be under way. */
  async close(): Promise<void> {
    await this.#control.close()
  }

  /** Whatever is under way fails at once. */
  giveUp(error: MillraceError): void {
    this.#gone.abort(error)
    this.#control.giveUp(error)
  }

  #send(open: OpenTransaction, { record, to }: BatchOutput): Promise<void> {
    return this.#control.send(open, record as NonNullable<typeof record>, to as Destination)
  }

  /** With less of what there is to say where the whole does not fit. */
  async #bury(open: OpenTransaction, burial: Burial): Promise<void> {
    const { topic, createTopic, partitions } = this.#settings.onFailure as DeadLetterPolicy
    if (createTopic) {
      this.#ensured ??= topic.ensure(partitions)
      await this.#ensured.catch((error) => {
        this.#ensured = undefined
        throw error
      })
    }
    const { limits } = this.#client.session.manifest
    const name = { stream: topic.stream, topic: topic.name }
    // What did not decrypt goes on as it is: it is encrypted already, for the topic that it came from.
    const sealer = burial.content === "message" ? this.#sealer : undefined
    for (let step = 0; ; step++) {
      try {
        const record = sealOne(
          sealer,
          name,
          prepareRecord(deadLetterRecord(burial, step, limits), limits, { resend: true }),
        )
        await this.#control.sendAsIs(open, record, { name, route: balanced })
        return
      } catch (error) {
        if (!(error instanceof RecordTooLargeError) || step >= errorTextBytes.length - 1) throw error
      }
    }
  }

  /**
   * Leaves the transaction behind, whatever state it is in, and makes the producer ready for the next one.
   * @returns whether it was committed after all
   * @throws what keeps the producer from going on
   */
  async #recover(open: OpenTransaction | undefined, batch: ProcessBatch): Promise<boolean> {
    const control = this.#control
    if (open !== undefined && control.state === "InTransaction") {
      // How that ends shows in the state.
      await control.abort(open).catch(() => {})
    }
    if (control.state === "InTransaction") control.dropped(open as OpenTransaction)
    if (control.state === "Ready") return false
    if (control.state === "FatalError") control.assertLiving()
    if (control.state === "Fenced") {
      // By the backend, which lets nobody's transaction stay open for long; or by a namesake, which is to go on.
      if (!this.#settings.ownId) control.assertLiving()
      await control.close().catch(() => {})
      if (this.#gone.signal.aborted) throw this.#gone.signal.reason
      this.#control = new TransactionControl(this.#client, this.#settings.producer, this.#statistics)
    }
    await this.#begin()
    // The end of the former incarnation is decided by now: its offsets are stored, or never will be.
    return open?.ending === "unknown" && (await this.#isStored(batch))
  }

  async #begin(): Promise<void> {
    await this.#persist(() => this.#control.init(false))
  }

  /** Whether the offsets of the batch are stored. Nobody else could have stored them while the claims are ours. */
  async #isStored({ offsets }: ProcessBatch): Promise<boolean> {
    if (offsets === undefined) return false
    const mine = offsets.entries.filter((_, index) => offsets.isOurs(index))
    if (mine.length === 0) return false
    const stored = await this.#persist(async () => {
      const positions = await this.#client.session.offsets.load(offsets.owner, mine.map(placeOf))
      return positions.map((position) => {
        if (position instanceof Error) throw position
        return position
      })
    })
    const all = mine.every((entry, index) => {
      const position = stored[index]
      return position !== undefined && position.lineage === entry.lineage && position.offset >= entry.offset
    })
    if (all) offsets.committed()
    return all
  }

  /** Tries what may pass again, for some minutes. */
  async #persist<T>(work: () => Promise<T>): Promise<T> {
    const { clock, random } = this.#client
    for (let failed = 0; ; failed++) {
      try {
        return await work()
      } catch (thrown) {
        const error = millraceError(thrown)
        const mayPass = (error.retryable || error.outcome === "unknown") && failed < mostRecoveries
        if (!mayPass || this.#gone.signal.aborted) throw error
      }
      await pause(clock, jittered(backoffMs(failed, firstWaitMs, longestWaitMs), random), this.#gone.signal)
      if (this.#gone.signal.aborted) throw this.#gone.signal.reason
    }
  }
}

/** What a transaction was aborted for, where it says so. */
function reasonOf(error: MillraceError): MillraceError {
  const { cause } = error
  return error instanceof TransactionAbortedError && cause !== undefined ? reasonOf(millraceError(cause)) : error
}

function placeOf({ stream, topic, partition }: OffsetEntry): Pick<OffsetEntry, "stream" | "topic" | "partition"> {
  return { stream, topic, partition }
}
