/** What Kafka's error codes mean here. Names and numbers are those of the protocol (Kafka's documentation, "Error Codes"). */
import type { ErrorKind, Outcome } from "@millrace/contract"

/** What a code means here. The kind's own `retryable` and `outcome` hold where they are absent. */
export interface Meaning {
  readonly name: string
  readonly kind: ErrorKind
  /** What happened, and what to do about it where something can be done. */
  readonly says: string
  readonly retryable?: boolean
  readonly outcome?: Outcome
}

const unknownOutcome = { retryable: true, outcome: "unknown" } as const
const passing = { retryable: true, outcome: "rejected" } as const

/** By code. */
export const meanings: Readonly<Record<number, Meaning>> = {
  [-1]: {
    name: "UNKNOWN_SERVER_ERROR",
    kind: "storage",
    says: "the broker failed in a way that it does not explain; its log file says more",
    ...unknownOutcome,
  },
  1: { name: "OFFSET_OUT_OF_RANGE", kind: "offset-out-of-range", says: "the offset is not in the log" },
  2: {
    name: "CORRUPT_MESSAGE",
    kind: "corruption",
    says: "the checksum or the layout of the records does not hold; they changed on the way",
    retryable: true,
  },
  3: { name: "UNKNOWN_TOPIC_OR_PARTITION", kind: "not-found", says: "there is no such topic or partition" },
  5: { name: "LEADER_NOT_AVAILABLE", kind: "not-leader", says: "the partition has no leader at the moment" },
  6: { name: "NOT_LEADER_OR_FOLLOWER", kind: "not-leader", says: "the partition is led by another broker now" },
  7: {
    name: "REQUEST_TIMED_OUT",
    kind: "timeout",
    says: "the broker did not finish in time, for example since replicas lag",
  },
  8: { name: "BROKER_NOT_AVAILABLE", kind: "connection", says: "the broker is not available" },
  9: { name: "REPLICA_NOT_AVAILABLE", kind: "not-leader", says: "the replica is not available on this broker" },
  10: { name: "MESSAGE_TOO_LARGE", kind: "record-too-large", says: "the batch is above the topic's max.message.bytes" },
  11: { name: "STALE_CONTROLLER_EPOCH", kind: "not-leader", says: "the controller has changed" },
  12: {
    name: "OFFSET_METADATA_TOO_LARGE",
    kind: "invalid",
    says: "the text beside the offset is larger than the broker allows",
  },
  13: { name: "NETWORK_EXCEPTION", kind: "connection", says: "the broker lost a connection", ...unknownOutcome },
  14: {
    name: "COORDINATOR_LOAD_IN_PROGRESS",
    kind: "not-leader",
    says: "the coordinator is still loading what it needs",
  },
  15: { name: "COORDINATOR_NOT_AVAILABLE", kind: "not-leader", says: "the coordinator is not available yet" },
  16: { name: "NOT_COORDINATOR", kind: "not-leader", says: "another broker is the coordinator now" },
  17: {
    name: "INVALID_TOPIC_EXCEPTION",
    kind: "invalid",
    says: "Kafka does not take this name for a topic, or does not let clients write to it",
  },
  18: {
    name: "RECORD_LIST_TOO_LARGE",
    kind: "record-too-large",
    says: "the batch is larger than a segment of the log (segment.bytes)",
  },
  19: {
    name: "NOT_ENOUGH_REPLICAS",
    kind: "throttled",
    says: "fewer replicas are in sync than min.insync.replicas asks for",
  },
  20: {
    name: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    kind: "timeout",
    says: "the records are in the leader's log, but fewer replicas than min.insync.replicas have them",
  },
  22: { name: "ILLEGAL_GENERATION", kind: "not-assigned", says: "the group has a newer generation" },
  23: {
    name: "INCONSISTENT_GROUP_PROTOCOL",
    kind: "invalid",
    says: "the other members of the group use a protocol or an assignor that this one does not have",
  },
  24: { name: "INVALID_GROUP_ID", kind: "invalid", says: "Kafka does not take this name for a group" },
  25: { name: "UNKNOWN_MEMBER_ID", kind: "not-assigned", says: "the group does not know this member, or not any more" },
  26: {
    name: "INVALID_SESSION_TIMEOUT",
    kind: "invalid",
    says: "the session timeout lies outside of what the broker allows (group.min.session.timeout.ms to group.max.session.timeout.ms)",
  },
  27: { name: "REBALANCE_IN_PROGRESS", kind: "not-assigned", says: "the group is being rebalanced", retryable: true },
  28: {
    name: "INVALID_COMMIT_OFFSET_SIZE",
    kind: "invalid",
    says: "the metadata of the offset is larger than the broker allows",
  },
  29: { name: "TOPIC_AUTHORIZATION_FAILED", kind: "permission", says: "this user may not do that with the topic" },
  30: { name: "GROUP_AUTHORIZATION_FAILED", kind: "permission", says: "this user may not use the group" },
  31: { name: "CLUSTER_AUTHORIZATION_FAILED", kind: "permission", says: "this user may not do that with the cluster" },
  32: {
    name: "INVALID_TIMESTAMP",
    kind: "invalid",
    says: "a record's time is too far from the broker's (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
  },
  33: {
    name: "UNSUPPORTED_SASL_MECHANISM",
    kind: "authentication",
    says: "the broker does not take this way to log in",
  },
  34: { name: "ILLEGAL_SASL_STATE", kind: "authentication", says: "the broker expects a login first" },
  35: {
    name: "UNSUPPORTED_VERSION",
    kind: "unsupported",
    says: "the broker does not know this version of the request",
  },
  36: {
    name: "TOPIC_ALREADY_EXISTS",
    kind: "already-exists",
    says: "there is a topic of this name",
  },
  37: { name: "INVALID_PARTITIONS", kind: "invalid", says: "the broker does not take this number of partitions" },
  38: {
    name: "INVALID_REPLICATION_FACTOR",
    kind: "invalid",
    says: "there are not as many brokers as the replication factor asks for",
  },
  39: { name: "INVALID_REPLICA_ASSIGNMENT", kind: "invalid", says: "the brokers of the partitions do not fit" },
  40: { name: "INVALID_CONFIG", kind: "invalid", says: "a setting of the topic is wrong" },
  41: { name: "NOT_CONTROLLER", kind: "not-leader", says: "another broker is the controller now" },
  42: {
    name: "INVALID_REQUEST",
    kind: "invalid",
    says: "the broker does not take the request as it is; its log file says why",
  },
  43: {
    name: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    kind: "unsupported",
    says: "the topic has an older format of messages",
  },
  44: { name: "POLICY_VIOLATION", kind: "permission", says: "a policy of the cluster forbids it" },
  45: {
    name: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    kind: "sequence",
    says: "the producer's sequence does not continue the partition's",
  },
  46: { name: "DUPLICATE_SEQUENCE_NUMBER", kind: "sequence", says: "the broker has these records already" },
  47: { name: "INVALID_PRODUCER_EPOCH", kind: "fenced", says: "the producer's identity has a newer epoch" },
  53: {
    name: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    kind: "permission",
    says: "this user may not use the transactional id",
  },
  55: { name: "OPERATION_NOT_ATTEMPTED", kind: "invalid", says: "another part of the same request failed", ...passing },
  56: {
    name: "KAFKA_STORAGE_ERROR",
    kind: "not-leader",
    says: "the disk of the leader failed; another broker will take over",
  },
  57: { name: "LOG_DIR_NOT_FOUND", kind: "storage", says: "the broker does not have the directory of the log" },
  58: { name: "SASL_AUTHENTICATION_FAILED", kind: "authentication", says: "the user or the password is wrong" },
  59: { name: "UNKNOWN_PRODUCER_ID", kind: "sequence", says: "the partition holds nothing of this producer any more" },
  60: { name: "REASSIGNMENT_IN_PROGRESS", kind: "throttled", says: "the partitions are being moved to other brokers" },
  65: {
    name: "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    kind: "permission",
    says: "the delegation token does not allow it",
  },
  68: { name: "NON_EMPTY_GROUP", kind: "invalid", says: "the group has members" },
  69: { name: "GROUP_ID_NOT_FOUND", kind: "not-found", says: "there is no such group" },
  70: { name: "FETCH_SESSION_ID_NOT_FOUND", kind: "connection", says: "the broker has dropped the fetch session" },
  71: { name: "INVALID_FETCH_SESSION_EPOCH", kind: "connection", says: "the fetch session is out of step" },
  72: { name: "LISTENER_NOT_FOUND", kind: "connection", says: "the leader has no listener of this name" },
  73: {
    name: "TOPIC_DELETION_DISABLED",
    kind: "permission",
    says: "the cluster does not let topics be deleted (delete.topic.enable)",
  },
  74: { name: "FENCED_LEADER_EPOCH", kind: "not-leader", says: "the leader has changed since it was looked up" },
  75: { name: "UNKNOWN_LEADER_EPOCH", kind: "not-leader", says: "the broker does not know of the newest leader yet" },
  76: { name: "UNSUPPORTED_COMPRESSION_TYPE", kind: "unsupported", says: "the broker does not take this compression" },
  77: { name: "STALE_BROKER_EPOCH", kind: "not-leader", says: "the broker has just been restarted" },
  78: {
    name: "OFFSET_NOT_AVAILABLE",
    kind: "not-leader",
    says: "the new leader does not know the end of the partition yet",
  },
  79: {
    name: "MEMBER_ID_REQUIRED",
    kind: "not-assigned",
    says: "the member has to join again with the id that it was given",
    retryable: true,
  },
  80: { name: "PREFERRED_LEADER_NOT_AVAILABLE", kind: "not-leader", says: "the preferred leader is not available" },
  81: {
    name: "GROUP_MAX_SIZE_REACHED",
    kind: "throttled",
    says: "the group has as many members as the broker allows (group.max.size)",
  },
  82: { name: "FENCED_INSTANCE_ID", kind: "fenced", says: "another member has taken this stable name" },
  83: { name: "ELIGIBLE_LEADERS_NOT_AVAILABLE", kind: "not-leader", says: "no replica may lead the partition" },
  86: { name: "GROUP_SUBSCRIBED_TO_TOPIC", kind: "invalid", says: "members of the group read this topic" },
  87: {
    name: "INVALID_RECORD",
    kind: "invalid",
    says: "the broker does not take a record as it is (a compacted topic, for example, wants keys)",
  },
  88: {
    name: "UNSTABLE_OFFSET_COMMIT",
    kind: "throttled",
    says: "a transaction that commits these offsets is under way",
  },
  89: { name: "THROTTLING_QUOTA_EXCEEDED", kind: "throttled", says: "a quota of the cluster is used up" },
  90: { name: "PRODUCER_FENCED", kind: "fenced", says: "a newer producer has taken over" },
  100: {
    name: "UNKNOWN_TOPIC_ID",
    kind: "not-found",
    says: "there is no topic with this id: it was deleted, perhaps recreated",
  },
  103: { name: "INCONSISTENT_TOPIC_ID", kind: "not-found", says: "the topic was recreated" },
  104: { name: "INCONSISTENT_CLUSTER_ID", kind: "connection", says: "the broker belongs to another cluster" },
  106: {
    name: "FETCH_SESSION_TOPIC_ID_ERROR",
    kind: "connection",
    says: "the fetch session mixes topics with and without ids",
  },
  107: { name: "INELIGIBLE_REPLICA", kind: "not-leader", says: "the replica may not take part at the moment" },
  108: { name: "NEW_LEADER_ELECTED", kind: "not-leader", says: "another broker has become the leader" },
  109: {
    name: "OFFSET_MOVED_TO_TIERED_STORAGE",
    kind: "not-leader",
    says: "the offset is in tiered storage, where this broker does not look",
  },
  110: { name: "FENCED_MEMBER_EPOCH", kind: "not-assigned", says: "the group has fenced this member" },
  111: { name: "UNRELEASED_INSTANCE_ID", kind: "fenced", says: "another member holds this stable name" },
  112: { name: "UNSUPPORTED_ASSIGNOR", kind: "unsupported", says: "the broker does not have this assignor" },
  113: { name: "STALE_MEMBER_EPOCH", kind: "not-assigned", says: "the member has a newer epoch" },
  117: { name: "UNKNOWN_SUBSCRIPTION_ID", kind: "invalid", says: "the subscription is not known" },
  120: { name: "TRANSACTION_ABORTABLE", kind: "transaction-state", says: "the transaction can only be aborted" },
  128: { name: "INVALID_REGULAR_EXPRESSION", kind: "invalid", says: "the regular expression is wrong" },
  129: {
    name: "REBOOTSTRAP_REQUIRED",
    kind: "connection",
    says: "the broker asks the client to begin again with its first addresses",
  },
}
