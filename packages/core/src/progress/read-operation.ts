import { MillraceError, type TopicPartition } from "@millrace/contract"

/**
 * A read under the policy `onRead` whose store may or may not have happened: `consumer.resolve` finds out, `consumer.abandon` gives the question
 * up (seed 001, "Read errors"). The error that the partition stops with carries it as `context.operation`.
 */
export class ReadOperation implements TopicPartition {
  readonly stream: string
  readonly topic: string
  readonly partition: number
  /** What was to be stored as handled: the last record of the read, or of the hole behind it. */
  readonly through: bigint

  /** Made by a consumer. */
  constructor({ stream, topic, partition }: TopicPartition, through: bigint) {
    this.stream = stream
    this.topic = topic
    this.partition = partition
    this.through = through
  }

  /** The operation that an error is about, if it is about one. */
  static of(error: unknown): ReadOperation | undefined {
    const operation = error instanceof MillraceError ? error.context.operation : undefined
    return operation instanceof ReadOperation ? operation : undefined
  }
}
