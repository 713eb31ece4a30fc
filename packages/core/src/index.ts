export type { CloseOptions } from "./client/client.ts"
export { Client, openClient } from "./client/client.ts"
export type { ClientOptions } from "./client/client-options.ts"
export { ConnectionWatch } from "./client/connection-watch.ts"
export type { GroupInfo, GroupMemberInfo } from "./client/consumer-group.ts"
export { ConsumerGroup } from "./client/consumer-group.ts"
export type { ClientRuntime } from "./client/live-context.ts"
export type { StreamInfo } from "./client/stream.ts"
export { Stream } from "./client/stream.ts"
export { Topic } from "./client/topic.ts"
export type { RetentionOptions, TopicInfo, TopicOptions } from "./client/topic-options.ts"
export type { ArrowExpectation } from "./codec/arrow-check.ts"
export type { ArrowDescription } from "./codec/arrow-ipc.ts"
export { describeArrowIpc } from "./codec/arrow-ipc.ts"
export type { Codec } from "./codec/codec.ts"
export { Json } from "./codec/json.ts"
export type { StandardSchema } from "./codec/standard-schema.ts"
export type { TypedTopic } from "./codec/typed-topic.ts"
export type { Consumer, Lag, StoredOffset } from "./consumer/consumer.ts"
export type {
  ConsumerEvents,
  LoopBlock,
  OverdueHandling,
  Reconnection,
  Revocation,
  Skip,
  SourceChange,
  Stall,
} from "./consumer/consumer-events.ts"
export type { ConsumerOptions, GroupConsumerOptions } from "./consumer/consumer-options.ts"
export type { PartitionRef } from "./consumer/partition-ref.ts"
export type { Cursor, CursorResult } from "./cursor/cursor.ts"
export type { ReaderOptions } from "./cursor/log-cursor.ts"
export type { Encryptor, EncryptorOptions } from "./encryption/encryptor.ts"
export { encryptor } from "./encryption/encryptor.ts"
export type { IggyEncryptorOptions } from "./encryption/iggy-encryptor.ts"
export { iggyEncryptor } from "./encryption/iggy-encryptor.ts"
export { checkEncryptor } from "./encryption/sealing.ts"
export type { RevisionState } from "./filter/filter-binding.machine.ts"
export type {
  FilterPreview,
  FilterTestResult,
  PreviewedRecord,
  PreviewOptions,
  TestOptions,
} from "./filter/filter-preview.ts"
export { openFilteredReader } from "./filter/filtered-reader.ts"
export type { FilterBinding, FilterRevision, FilterRevisionPage, FilterSpec } from "./filter/group-filter.ts"
export { GroupFilter } from "./filter/group-filter.ts"
export type { GroupReader } from "./group/group-reader.ts"
export type { GroupReaderOptions } from "./group/group-reader-options.ts"
export type { MatchedPage } from "./group/page-ledger.ts"
export type { DeadLetterOptions, DeadLetterPolicy, DeadLetterTopic } from "./handler/dead-letter.ts"
export { deadLetter } from "./handler/dead-letter.ts"
export type { DeadContent, DeadLetterBlock } from "./handler/dead-letter-record.ts"
export { deadLetterBlock } from "./handler/dead-letter-record.ts"
export type { Handler, HandlerContext } from "./handler/handler-context.ts"
export type { DeadLetter, RedriveOptions, RedriveResult } from "./handler/redrive.ts"
export { redrive } from "./handler/redrive.ts"
export type { HandlerOrder, RetryOptions, RunOptions } from "./handler/run-options.ts"
export type {
  Backpressure,
  BatchEvent,
  BatchFailed,
  BatchRetried,
  BatchSent,
  ConnectionLost,
  ConnectionRestored,
  DiagnosticsChannel,
  DiagnosticsChannels,
  SpoolEvent,
  StatisticsFailed,
} from "./observe/diagnostics.ts"
export { diagnostics } from "./observe/diagnostics.ts"
export type { ProducerReport, ReportedCounts } from "./observe/producer-report.ts"
export type { ObserveOptions } from "./observe/statistics-reporter.ts"
export type { StatisticsSettings } from "./observe/statistics-settings.ts"
export { readStatisticsSettings } from "./observe/statistics-settings.ts"
export type { Sending, SendOutcome, SendSpan, Telemetry } from "./observe/telemetry.ts"
export type { TraceContext } from "./observe/trace-context.ts"
export { traceContextOf } from "./observe/trace-context.ts"
export type { StartAt } from "./partition/start-at.ts"
export type { BackgroundOptions } from "./producer/background-options.ts"
export type { ArrowBatchRecord, BatchRecord } from "./producer/batch-publish-builder.ts"
export { BatchPublishBuilder } from "./producer/batch-publish-builder.ts"
export { BatchingBuilder } from "./producer/batching-builder.ts"
export { BatchingProducer } from "./producer/batching-producer.ts"
export type { Confirmation, SendResult } from "./producer/confirmation.ts"
export type { Delivery, DeliveryHandle } from "./producer/delivery-call.ts"
export { PooledBatch } from "./producer/pooled-batch.ts"
export { PooledBatchBuilder } from "./producer/pooled-batch-builder.ts"
export type { Producer, SendBatchOptions, SendOptions, TopicRef } from "./producer/producer.ts"
export type { ProducerOptions } from "./producer/producer-options.ts"
export type { ResendOptions } from "./producer/publish.ts"
export { PublishBuilder } from "./producer/publish-builder.ts"
export type { PublishFailure } from "./producer/publish-failed.ts"
export { PublishFailedError } from "./producer/publish-failed.ts"
export type { Partitioner, PartitionerRecord, Routing } from "./producer/routing.ts"
export type { ShutdownOptions } from "./producer/sending-end.ts"
export type { LatencySummary, ProducerStatistics } from "./producer/statistics.ts"
export type { AutoCommit, CommitPolicy } from "./progress/commit-policy.ts"
export { ReadOperation } from "./progress/read-operation.ts"
export { Checkpoint } from "./record/checkpoint.ts"
export type { Message, MessageJson, Position } from "./record/message.ts"
export type { MessageBatch } from "./record/message-batch.ts"
export type { ContentType, RecordMetadata } from "./record/metadata.ts"
export type { OutgoingRecord } from "./record/outgoing-record.ts"
export type { RentedBatch } from "./record/rented-batch.ts"
export type { RefusedRecord, Spool, SpoolDepth } from "./spool/spool.ts"
export type { SpoolOptions } from "./spool/spool-options.ts"
