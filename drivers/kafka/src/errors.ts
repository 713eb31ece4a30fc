/** Kafka's error codes as failures of the contract. */
import { type ErrorContext, type ErrorKind, MillraceError } from "@millrace/contract"
import { meanings } from "./error-meanings.ts"

/** Codes that some part of the driver treats in a way of its own. */
export const errorCode = {
  none: 0,
  offsetOutOfRange: 1,
  corruptMessage: 2,
  unknownTopicOrPartition: 3,
  leaderNotAvailable: 5,
  notLeaderOrFollower: 6,
  requestTimedOut: 7,
  messageTooLarge: 10,
  coordinatorLoadInProgress: 14,
  coordinatorNotAvailable: 15,
  notCoordinator: 16,
  recordListTooLarge: 18,
  notEnoughReplicasAfterAppend: 20,
  illegalGeneration: 22,
  inconsistentGroupProtocol: 23,
  unknownMemberId: 25,
  rebalanceInProgress: 27,
  unsupportedVersion: 35,
  topicAlreadyExists: 36,
  invalidPartitions: 37,
  notController: 41,
  invalidRequest: 42,
  duplicateSequence: 46,
  outOfOrderSequence: 45,
  invalidProducerEpoch: 47,
  unknownProducerId: 59,
  nonEmptyGroup: 68,
  groupIdNotFound: 69,
  fetchSessionIdNotFound: 70,
  invalidFetchSessionEpoch: 71,
  fencedLeaderEpoch: 74,
  unknownLeaderEpoch: 75,
  offsetNotAvailable: 78,
  memberIdRequired: 79,
  fencedInstanceId: 82,
  groupSubscribedToTopic: 86,
  producerFenced: 90,
  unknownTopicId: 100,
  inconsistentTopicId: 103,
  fencedMemberEpoch: 110,
  unreleasedInstanceId: 111,
  unsupportedAssignor: 112,
  staleMemberEpoch: 113,
  rebootstrapRequired: 129,
} as const

/** What a failure speaks of. */
export interface Failure {
  /** The thing and what was done to it: `appending to partition 3 of topic "s/t"`. */
  readonly what: string
  readonly context?: ErrorContext
  /** The broker's own words, where it has some. */
  readonly detail?: string | null
  /** Whether the request changed nothing: an outcome that is otherwise unknown is then `rejected`. */
  readonly readOnly?: boolean
}

/** `MESSAGE_TOO_LARGE (10)`. */
function errorName(code: number): string {
  return `${meanings[code]?.name ?? "an error that this driver does not know"} (${code})`
}

/** The failure that an error code in an answer means. A code that is not known may mean anything: its outcome is unknown. */
export function kafkaError(code: number, failure: Failure): MillraceError {
  const meaning = meanings[code]
  const says = meaning === undefined ? "" : `: ${meaning.says}`
  const detail =
    failure.detail === undefined || failure.detail === null || failure.detail === "" ? "" : ` (${failure.detail})`
  const message = `${failure.what} failed: Kafka answered ${errorName(code)}${says}${detail}`
  const kind = meaning?.kind ?? "protocol"
  const outcome = failure.readOnly === true ? "rejected" : meaning?.outcome
  const error = new MillraceError(kind, message, {
    ...(meaning?.retryable === undefined ? {} : { retryable: meaning.retryable }),
    ...(outcome === undefined ? {} : { outcome }),
    context: { ...failure.context, kafkaError: meaning?.name ?? code },
  })
  error.name = classNames[kind] ?? error.name
  return error
}

/** The names of the contract's classes by kind; other kinds have none of their own. */
const classNames: Partial<Record<ErrorKind, string>> = {
  invalid: "InvalidError",
  unsupported: "UnsupportedError",
  "not-found": "NotFoundError",
  "already-exists": "AlreadyExistsError",
  authentication: "AuthenticationError",
  permission: "PermissionError",
  connection: "ConnectionError",
  timeout: "TimeoutError",
  "record-too-large": "RecordTooLargeError",
  fenced: "FencedError",
  "not-assigned": "NotAssignedError",
  "offset-out-of-range": "OffsetOutOfRangeError",
  sequence: "SequenceError",
  storage: "StorageError",
  corruption: "CorruptionError",
}

/** The same failure with another outcome. */
export function withOutcome(error: MillraceError, outcome: "rejected" | "unknown"): MillraceError {
  if (error.outcome === outcome) return error
  const { kind, message, retryable, context, cause } = error
  const same = new MillraceError(kind, message, { retryable, outcome, context, cause })
  same.name = error.name
  return same
}

/** Whether the code says that the leader is another, or that this one does not know enough yet: look it up again. */
export function meansOtherLeader(code: number): boolean {
  return meanings[code]?.kind === "not-leader"
}

/** Whether the code says that the coordinator is another or not ready: look it up again. */
export function meansOtherCoordinator(code: number): boolean {
  return code >= errorCode.coordinatorLoadInProgress && code <= errorCode.notCoordinator
}

/** Whether the code says that the topic, as it is named or identified, is not there. */
export function meansNoTopic(code: number): boolean {
  return (
    code === errorCode.unknownTopicOrPartition ||
    code === errorCode.unknownTopicId ||
    code === errorCode.inconsistentTopicId
  )
}
