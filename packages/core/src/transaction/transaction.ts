import type { Consumer } from "../consumer/consumer.ts"
import type { SendResult } from "../producer/confirmation.ts"
import type { SendBatchOptions, SendOptions, TopicRef } from "../producer/producer.ts"
import type { Checkpoint } from "../record/checkpoint.ts"
import type { Message } from "../record/message.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import type { TypedSendOptions } from "../typed/record-encoder.ts"
import type { TypedTopic } from "../typed/typed-topic.ts"

/** What becomes of a transaction. `unknown`: its end was asked for, and nobody answered whether it came; `init()` finds out. */
export type TransactionEnding = "open" | "prepared" | "committed" | "aborted" | "unknown"

/**
 * One transaction: records of any topics, and a consumer's offsets, that appear together or not at all (seed 004). Made by `begin` or
 * `within`. A guard that is disposed unfinished (`await using`) aborts; one that is prepared stays so.
 */
export interface Transaction extends AsyncDisposable {
  /** How it stands, as far as this guard knows. */
  readonly ending: TransactionEnding
  /**
   * Adds one record; `null` is a tombstone. Resolves when it is accepted, with the bytes copied: where it will be stored is told by
   * `commit`. One that is refused is not part of the transaction, which goes on; what fails later makes `commit` fail.
   * @throws InvalidError, RecordTooLargeError, UnsupportedError for this record; TransactionAbortedError once the transaction cannot be
   *   committed any more, with the reason as its cause; TransactionStateError while it is being prepared or ended, and afterwards
   */
  send(topic: TopicRef, payload: Uint8Array | null, options?: SendOptions): Promise<void>
  /** Adds one value to a typed topic; `null` is a tombstone. @throws InvalidError when it has no encoding; else as for bytes */
  send<T>(topic: TypedTopic<T>, value: T | null, options?: TypedSendOptions): Promise<void>
  /** Adds records in order. @throws as `send`; a record that is refused is named by its index, and then none is added */
  sendBatch(
    topic: TopicRef,
    records: readonly (Uint8Array | OutgoingRecord)[],
    options?: SendBatchOptions,
  ): Promise<void>
  /**
   * Stores a consumer's progress with the commit: everything up to these messages counts as handled then, and nothing before. Fenced by
   * the claims under which they were read (KIP-447). A later call for a partition replaces an earlier one.
   * @param consumer With `commitPolicy: { kind: "disabled" }`: one that stores by itself could store what is then aborted.
   * @throws InvalidError for a consumer without a name, of another client or with another policy; NotAssignedError when a partition is
   *   another member's by now, HistoryChangedError when its topic was purged or recreated: the transaction must be aborted then;
   *   UnsupportedError where transactions hold no offsets; else as `send`
   */
  sendOffsets(consumer: Consumer, what: readonly (Message | Checkpoint)[]): Promise<void>
  /**
   * Sends what is left and locks the transaction: it survives this process, takes nothing more, and ends only by `commit`, `abort` or
   * `complete(token)`, here or in a later process that calls `init({ keepPrepared: true })` (KIP-939).
   * @returns the token, for a coordinator to keep
   * @throws TimeoutError when records were not accepted within `flushTimeoutMs`: the transaction is open, and it can be tried again;
   *   UnsupportedError where the backend cannot prepare; else as `commit`
   */
  prepare(): Promise<string>
  /**
   * Sends what is left, then makes all of it visible. What goes unanswered is asked again within the producer's retries.
   * @returns where each batch was stored
   * @throws TransactionAbortedError when something of it has failed, or the backend has aborted it: call `abort`, and begin again;
   *   NotAssignedError, HistoryChangedError of its offsets, likewise; TimeoutError when records were not accepted within
   *   `flushTimeoutMs`: the transaction stays open; FencedError. An error with outcome `unknown`: it may be committed; call `init`, and
   *   look whether it is
   */
  commit(): Promise<SendResult>
  /**
   * Nothing of it was ever there. What was not sent yet is dropped, and what is under way is waited for. Aborting twice does nothing.
   * @throws TransactionStateError when it is committed; FencedError; an error with outcome `unknown`: call `init`
   */
  abort(): Promise<void>
}

/** What `init` does about the past. */
export interface InitOptions {
  /** Keeps what an earlier incarnation has prepared, for `complete`. Default false: it is aborted. */
  readonly keepPrepared?: boolean
}

/** What a fencing token is made of. */
export interface TransactionalIdentity {
  readonly producerId: bigint
  readonly epoch: number
}
