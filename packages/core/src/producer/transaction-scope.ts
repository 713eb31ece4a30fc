import type { TopicName, TransactionHandle } from "@millrace/contract"
import type { Identities } from "./identity-source.ts"

/** The transactions that a publisher sends in, one after the other. */
export interface TransactionScope {
  /** Where batches get their numbers: the identity of the transaction's session. */
  readonly identities: Identities
  /** What a batch that goes out now is part of. @throws TransactionAbortedError once nothing more of the transaction may go out */
  readonly handle: TransactionHandle
  /** Records are about to be collected for this partition. @throws UnsupportedError where a transaction has records of one partition only */
  enter(name: TopicName, partition: number): void
}
