export { absentQueues, absentState, absentTransactions, unsupported } from "./absent.ts"
export type {
  AppendOptions,
  AppendResult,
  AssignmentChange,
  Catalog,
  ConnectionChange,
  ConnectTarget,
  Driver,
  GroupCoordinator,
  GroupDescription,
  Identity,
  JoinOptions,
  LogReader,
  Membership,
  OffsetEntry,
  OffsetOwner,
  OffsetStore,
  OptionKind,
  PartitionDescription,
  PartitionLog,
  PartitionRead,
  ReaderOptions,
  ReadLimits,
  ReadPosition,
  Session,
  SessionOptions,
  StreamDescription,
  TopicDescription,
  TopicSpec,
  WriterLimits,
} from "./driver.ts"
export type { ErrorContext, ErrorDetails, ErrorKind, ErrorWire, Outcome } from "./error.ts"
export {
  AlreadyExistsError,
  AuthenticationError,
  BufferFullError,
  CancelledError,
  ClosedError,
  ConnectionError,
  CorruptionError,
  DecodeError,
  DiskFullError,
  errorFromWire,
  errorToWire,
  FencedError,
  HistoryChangedError,
  InvalidError,
  MillraceError,
  NotAssignedError,
  NotFoundError,
  OffsetOutOfRangeError,
  PermissionError,
  RecordTooLargeError,
  SequenceError,
  StorageError,
  TimeoutError,
  TransactionAbortedError,
  TransactionStateError,
  UnsupportedError,
} from "./error.ts"
export { readCbor } from "./filter/cbor.ts"
export { checkFilter } from "./filter/check.ts"
export type {
  CheckedFilter,
  ContainsTest,
  EqualityTest,
  Filter,
  FilterCodec,
  FilterCoercion,
  FilterExpression,
  FilterLimits,
  FilterPlace,
  FilterScalar,
  FilterTest,
  MembershipTest,
  OrderTest,
  PresenceTest,
  TextTest,
  TopicFilter,
} from "./filter/filter.ts"
export { filterLimits } from "./filter/filter.ts"
export { filterText, parseFilterText } from "./filter/filter-text.ts"
export type {
  ExplainedNode,
  FilterExplanation,
  FilterJudgement,
  FilterProgram,
  FilterRecord,
  FilterVerdict,
} from "./filter/program.ts"
export { compileFilter } from "./filter/program.ts"
export type { FilterReason, RecordSource } from "./filter/record-view.ts"
export { errorAt, Selection } from "./filter/selection.ts"
export { formatHeaderKinds, headerKindsName, parseHeaderKinds } from "./header-kinds.ts"
export type { HeaderKind } from "./header-value.ts"
export { HeaderValue, headerKindCodes, hex } from "./header-value.ts"
export type { HeadersInit } from "./headers.ts"
export { Headers } from "./headers.ts"
export type { Capability, Compression, Durability, Manifest, TransactionCapability } from "./manifest.ts"
export type { MessageId } from "./message-id.ts"
export { batchId, checkMessageId, formatMessageId, maxBatchRecords, parseMessageId, splitId } from "./message-id.ts"
export { murmur2 } from "./murmur2.ts"
export type { Anchor, Claim, Lineage, Position, TopicName, TopicPartition, Watermarks } from "./position.ts"
export type {
  AckPolicy,
  QueueBroker,
  QueueDelivery,
  QueueDescription,
  QueuePullLimits,
  QueueSession,
  QueueSpec,
  QueueStart,
  Settlement,
} from "./queue-broker.ts"
export type { BatchStamp, BatchWriter, EncodedBatch, SealedBatch, WireRecord } from "./record.ts"
export type { StateEntry, StateStore } from "./state-store.ts"
export { stateKeyBytes, stateValueBytes } from "./state-store.ts"
export type {
  PreparedTransaction,
  StagedResult,
  TransactionHandle,
  TransactionSession,
  Transactions,
} from "./transactions.ts"
