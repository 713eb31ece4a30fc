/** What this driver tells on `node:diagnostics_channel`, for those who look into it: nothing that a program has to act on. */
import { type Channel, channel } from "node:diagnostics_channel"
import type { TopicPartition } from "@millrace/contract"

/** `millrace:nats.reader.replaced`: a reader gave up a consumer that stood behind its stream's leader, and made another. */
export interface ReaderReplaced extends TopicPartition {
  /** Where reading goes on: the offset behind the last record that came. */
  readonly offset: bigint
  /** The end of the partition, as the stream's leader told it. */
  readonly head: bigint
}

const replaced: Channel = channel("millrace:nats.reader.replaced")

/** Tells of a replaced consumer, where anybody listens. @param last The sequence of the last record that came. @param head The leader's last. */
export function tellReplaced({ stream, topic, partition }: TopicPartition, last: number, head: number): void {
  if (!replaced.hasSubscribers) return
  const message: ReaderReplaced = { stream, topic, partition, offset: BigInt(last), head: BigInt(head) }
  replaced.publish(message)
}
