/** What the server's refusals mean in the terms of the contract (iggy-wire.md: Refusals). */
import { type ErrorKind, MillraceError, type Outcome } from "@millrace/contract"
import { errorNames } from "./error-names.ts"

interface Meaning {
  readonly kind: ErrorKind
  /** What happened or what to do, as the end of a sentence. */
  readonly advice: string
  readonly outcome?: Outcome
  readonly retryable?: boolean
}

/** Codes that a driver asks for by name. */
export const errorCodes: {
  readonly resourceNotFound: 20
  readonly staleClient: 30
  readonly unauthenticated: 40
  readonly invalidCredentials: 42
  readonly transientNotCommitted: 57
  readonly transientNotAccepted: 58
  readonly historyUnavailable: 87
  readonly streamNotFound: 1009
  readonly topicNotFound: 2010
  readonly partitionNotFound: 3007
  readonly offsetNotFound: 3021
  readonly invalidOffset: 4100
  readonly groupNotFound: 5000
  readonly groupExists: 5004
  readonly memberNotFound: 5006
} = {
  resourceNotFound: 20,
  staleClient: 30,
  unauthenticated: 40,
  invalidCredentials: 42,
  transientNotCommitted: 57,
  transientNotAccepted: 58,
  historyUnavailable: 87,
  streamNotFound: 1009,
  topicNotFound: 2010,
  partitionNotFound: 3007,
  offsetNotFound: 3021,
  invalidOffset: 4100,
  groupNotFound: 5000,
  groupExists: 5004,
  memberNotFound: 5006,
}

const sessionLost = "the session is gone; a new one is being opened, try again"
const meanings: ReadonlyMap<number, Meaning> = new Map<number, Meaning>([
  [3, { kind: "protocol", advice: "the server does not understand the request" }],
  [4, { kind: "protocol", advice: "the server found the request malformed" }],
  [5, { kind: "unsupported", advice: "this server does not offer it" }],
  [20, { kind: "not-found", advice: "the stream, topic, partition, user or token does not exist" }],
  [30, { kind: "connection", advice: sessionLost }],
  [40, { kind: "connection", advice: sessionLost }],
  [41, { kind: "permission", advice: "the user lacks the permission; a user who may manage users can grant it" }],
  [42, { kind: "authentication", advice: "check user and password in the URL" }],
  [43, { kind: "invalid", advice: "a user name has 3 to 50 bytes" }],
  [46, { kind: "already-exists", advice: "the user exists" }],
  [47, { kind: "authentication", advice: "the user is inactive" }],
  [48, { kind: "permission", advice: "the root user cannot be deleted" }],
  [49, { kind: "permission", advice: "the root user's permissions cannot be changed" }],
  [51, { kind: "already-exists", advice: "the user has a token of that name" }],
  [52, { kind: "invalid", advice: "a user has at most 100 tokens; delete one" }],
  [53, { kind: "authentication", advice: "the token is unknown or has expired" }],
  [54, { kind: "authentication", advice: "the token has expired" }],
  [56, { kind: "invalid", advice: "the token's lifetime is not one" }],
  [57, { kind: "timeout", advice: "it may yet be committed", outcome: "unknown", retryable: true }],
  [58, { kind: "not-leader", advice: "the node is not the leader or not ready; nothing was done" }],
  [59, { kind: "timeout", advice: "it was done and its answer is lost", outcome: "unknown", retryable: false }],
  [
    85,
    {
      kind: "timeout",
      advice: "the request is too old to tell what became of it",
      outcome: "unknown",
      retryable: false,
    },
  ],
  [87, { kind: "not-leader", advice: "the partition has moved on since the request was made; try again" }],
  [88, { kind: "throttled", advice: "the partition is being changed; try again" }],
  [89, { kind: "not-leader", advice: "another node leads the partition" }],
  [90, { kind: "throttled", advice: "too many polls wait on the server" }],
  [92, { kind: "sequence", advice: "the batch does not continue the producer's sequence" }],
  [93, { kind: "fenced", advice: "a newer incarnation of the producer has taken over" }],
  [94, { kind: "sequence", advice: "the server does not know the producer any more" }],
  [1009, { kind: "not-found", advice: "the stream does not exist" }],
  [1010, { kind: "not-found", advice: "the stream does not exist" }],
  [1012, { kind: "already-exists", advice: "the stream exists" }],
  [1019, { kind: "invalid", advice: "the size limit of a topic is at least its segment size" }],
  [1020, { kind: "invalid", advice: "the server has all the streams it can hold (1,048,576)" }],
  [2010, { kind: "not-found", advice: "the topic does not exist" }],
  [2011, { kind: "not-found", advice: "the topic does not exist" }],
  [2013, { kind: "already-exists", advice: "the topic exists" }],
  [2015, { kind: "invalid", advice: "one request makes or removes 1 to 1000 partitions" }],
  [2019, { kind: "invalid", advice: "the topic has fewer partitions than that" }],
  [2021, { kind: "invalid", advice: "the stream has all the topics it can hold (4096)" }],
  [2022, { kind: "invalid", advice: "the topic has all the partitions it can hold" }],
  [2023, { kind: "invalid", advice: "the topic was made with a fixed number of partitions" }],
  [3007, { kind: "not-found", advice: "the partition does not exist" }],
  [3008, { kind: "not-found", advice: "the topic has no partitions" }],
  [3009, { kind: "disk-full", advice: "the topic has reached its size limit" }],
  [3013, { kind: "invalid", advice: "the topic has all the partitions it can hold" }],
  [3014, { kind: "history-changed", advice: "the partition was purged or recreated" }],
  [3021, { kind: "not-found", advice: "no offset is stored" }],
  [4022, { kind: "record-too-large", advice: "the payload is above the server's limit" }],
  [4041, { kind: "invalid", advice: "the server does not know that option, or does not let it be changed" }],
  [4042, { kind: "invalid", advice: "the server does not take that value for the option" }],
  [4100, { kind: "offset-out-of-range", advice: "the offset lies behind the end of the partition" }],
  [5000, { kind: "not-found", advice: "the consumer group does not exist" }],
  [5003, { kind: "not-found", advice: "the consumer group does not exist" }],
  [5004, { kind: "already-exists", advice: "the consumer group exists" }],
  [5006, { kind: "not-found", advice: "this session is not a member of the consumer group" }],
  [5010, { kind: "invalid", advice: "the topic has all the consumer groups it can hold" }],
  [13000, { kind: "storage", advice: "the server's disk failed; see its log" }],
  [14003, { kind: "unsupported", advice: "the server speaks other versions of the protocol" }],
])

const unknownMeaning: Meaning = { kind: "protocol", advice: "Millrace does not know what to do about it" }

/** The error for a code. The server had not done anything, except where the code itself says that it may have. */
export function serverError(code: number, command: string): MillraceError {
  const { kind, advice, outcome = "rejected", retryable } = meanings.get(code) ?? unknownMeaning
  return new MillraceError(kind, `Apache Iggy answered ${command} with ${errorName(code)} (${code}): ${advice}`, {
    outcome,
    ...(retryable === undefined ? {} : { retryable }),
    context: { code, command },
  })
}

/** The server's code behind an error of `serverError`, or `undefined`. */
export function errorCodeOf(error: unknown): number | undefined {
  if (!(error instanceof MillraceError)) return undefined
  const { code } = error.context
  return typeof code === "number" ? code : undefined
}

/** A code's name, or `unknown error`. */
function errorName(code: number): string {
  return errorNames.get(code) ?? "an unknown error"
}
