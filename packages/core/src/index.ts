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
export type { ArrowTable } from "./codec/arrow.ts"
export { Arrow, arrow } from "./codec/arrow.ts"
export type { ArrowExpectation } from "./codec/arrow-check.ts"
export type { ArrowDescription } from "./codec/arrow-ipc.ts"
export { describeArrowIpc } from "./codec/arrow-ipc.ts"
export type { AvroOptions, AvroSchema } from "./codec/avro.ts"
export { Avro, avro } from "./codec/avro.ts"
export { Bson, bson } from "./codec/bson.ts"
export { bytes } from "./codec/bytes.ts"
export { Cbor, cbor } from "./codec/cbor.ts"
export type { Check } from "./codec/check.ts"
export type { Codec, CodecRecord } from "./codec/codec.ts"
export type { JsonOptions } from "./codec/json.ts"
export { Json, json } from "./codec/json.ts"
export type { AjvInstance, AjvValidate, JsonSchemaOptions } from "./codec/json-schema.ts"
export { JsonSchema, jsonSchema } from "./codec/json-schema.ts"
export type { MapOptions } from "./codec/map-options.ts"
export { Msgpack, msgpack } from "./codec/msgpack.ts"
export type { ProtobufSource } from "./codec/protobuf.ts"
export { Protobuf, protobuf } from "./codec/protobuf.ts"
export type { ProtobufType } from "./codec/protobuf-library.ts"
export type { StandardSchema } from "./codec/standard-schema.ts"
export { text } from "./codec/text.ts"
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
export { redrive } from "./handler/redrive.ts"
export type { DeadLetter, RedriveOptions, RedriveResult } from "./handler/redrive-letters.ts"
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
export type { IntervalSet } from "./queue/interval-set.ts"
export type { Queue, QueueInfo } from "./queue/queue.ts"
export type {
  Exhaustion,
  PullOptions,
  QueueConsumer,
  QueueConsumerEvents,
  QueueConsumerStatistics,
  QueueDrop,
  QueueHandler,
  QueueRunOptions,
} from "./queue/queue-consumer.ts"
export type { QueueConsumerOptions } from "./queue/queue-consumer-options.ts"
export type { QueueMessage } from "./queue/queue-message.ts"
export type { QueueOptions } from "./queue/queue-options.ts"
export type { TypedQueueMessage } from "./queue/valued-message.ts"
export { Checkpoint } from "./record/checkpoint.ts"
export type { Message, MessageJson, Position } from "./record/message.ts"
export type { MessageBatch } from "./record/message-batch.ts"
export type { ContentType, RecordMetadata } from "./record/metadata.ts"
export type { OutgoingRecord } from "./record/outgoing-record.ts"
export type { RentedBatch } from "./record/rented-batch.ts"
export { checkRegistry } from "./schema/check-registry.ts"
export type { ConfluentAuth, ConfluentOptions } from "./schema/confluent-registry.ts"
export { confluentRegistry } from "./schema/confluent-registry.ts"
export { IncompatibleSchemaError } from "./schema/incompatible.ts"
export type {
  Compatibility,
  CompatibilityReport,
  Incompatibility,
  RegisteredSchema,
  SchemaCheckOptions,
  SchemaFraming,
  SchemaInit,
  SchemaReference,
  SchemaRegisterOptions,
  SchemaRegistry,
  SchemaType,
  SchemaVersion,
} from "./schema/schema.ts"
export type { SchemaCodecOptions } from "./schema/schema-codec.ts"
export { schemaCodec } from "./schema/schema-codec.ts"
export type { RefusedRecord, Spool, SpoolDepth } from "./spool/spool.ts"
export type { SpoolOptions } from "./spool/spool-options.ts"
export type {
  ProcessContext,
  ProcessHandler,
  ProcessInput,
  ProcessMessage,
  ProcessOptions,
  ProcessOutputs,
  ProcessValue,
} from "./transaction/process-options.ts"
export type { Output, OutputOptions, ProcessOutput } from "./transaction/process-output.ts"
export { output } from "./transaction/process-output.ts"
export type { Abort, Processor, ProcessorEvents, ProcessorStatistics } from "./transaction/processor.ts"
export type { TransactionState } from "./transaction/transaction.machine.ts"
export type { InitOptions, Transaction, TransactionalIdentity, TransactionEnding } from "./transaction/transaction.ts"
export type { TransactionalOptions } from "./transaction/transactional-options.ts"
export type { TransactionalProducer } from "./transaction/transactional-producer.ts"
export type { DecodeFailures, OnDecodeError } from "./typed/decoding.ts"
export type { TypedRecord, TypedSendOptions, TypedTopicOptions } from "./typed/record-encoder.ts"
export type { TypedBatchBuilder } from "./typed/typed-batch-builder.ts"
export type {
  DecodeOptions,
  TypedConsumer,
  TypedConsumerOptions,
  TypedGroupConsumerOptions,
  TypedGroupReader,
  TypedGroupReaderOptions,
  ValuesOnly,
} from "./typed/typed-consumer.ts"
export type { TypedConsumerGroup } from "./typed/typed-consumer-group.ts"
export { TypedDecodeError } from "./typed/typed-decode-error.ts"
export type { DecodedRecord, RawRecord, Tombstone, TypedMessage, TypedOrRawMessage } from "./typed/typed-message.ts"
export type { TypedProducer } from "./typed/typed-producer.ts"
export type { TypedReader } from "./typed/typed-reader.ts"
export type { TypedTopic } from "./typed/typed-topic.ts"
