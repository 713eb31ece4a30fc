import {
  AlreadyExistsError,
  DiskFullError,
  InvalidError,
  MillraceError,
  NotFoundError,
  PermissionError,
  RecordTooLargeError,
  StorageError,
  UnsupportedError,
} from "@millrace/contract"

/** An error as JetStream answers it. `err_code` tells what happened, `code` is of HTTP's kind. */
export interface ApiError {
  readonly code?: number
  readonly err_code?: number
  readonly description?: string
}

/** The codes of JetStream's errors that this driver knows (`server/errors.json` of nats-server). */
export const apiCode: Readonly<Record<ApiCodeName, number>> = {
  insufficientResources: 10023,
  notEnabledForAccount: 10039,
  notEnabled: 10076,
  clusterNotAvailable: 10008,
  clusterNoPeers: 10005,
  noLeader: 10009,
  storageExceeded: 10047,
  memoryExceeded: 10028,
  accountResourcesExceeded: 10002,
  messageTooLarge: 10054,
  streamNameInUse: 10058,
  streamNotFound: 10059,
  wrongLastId: 10070,
  wrongLastSequence: 10071,
  storeFailed: 10077,
  duplicateInProcess: 10158,
  tooManyRequests: 10167,
  batchDisabled: 10174,
  batchIncomplete: 10176,
  batchDuplicate: 10201,
  ingestDisabled: 10205,
  batchUnknown: 10208,
  batchTooMany: 10210,
  ingestTooMany: 10211,
  consumerNotFound: 10014,
}

type ApiCodeName =
  | "insufficientResources"
  | "notEnabledForAccount"
  | "notEnabled"
  | "clusterNotAvailable"
  | "clusterNoPeers"
  | "noLeader"
  | "storageExceeded"
  | "memoryExceeded"
  | "accountResourcesExceeded"
  | "messageTooLarge"
  | "streamNameInUse"
  | "streamNotFound"
  | "wrongLastId"
  | "wrongLastSequence"
  | "storeFailed"
  | "duplicateInProcess"
  | "tooManyRequests"
  | "batchDisabled"
  | "batchIncomplete"
  | "batchDuplicate"
  | "ingestDisabled"
  | "batchUnknown"
  | "batchTooMany"
  | "ingestTooMany"
  | "consumerNotFound"

/**
 * What an answer that is an error means. JetStream answers an error only for what it did not do, so the outcome is `rejected`.
 * @param what The request or the thing it was about, for the message.
 */
export function jetstreamError(error: ApiError, what: string): MillraceError {
  const code = error.err_code ?? 0
  const says = `${what}: NATS answered "${error.description ?? "an error"}" (${code || error.code || "no code"})`
  const context = { errCode: code }
  switch (code) {
    case apiCode.streamNotFound:
    case apiCode.consumerNotFound:
      return new NotFoundError(says, { context })
    case apiCode.streamNameInUse:
      return new AlreadyExistsError(says, { context })
    case apiCode.notEnabled:
    case apiCode.notEnabledForAccount:
      return new UnsupportedError(`${says}. Start the server with -js, or enable JetStream for the account`, {
        context,
      })
    case apiCode.messageTooLarge:
      return new RecordTooLargeError(`${says}. Raise max_msg_size of the stream, or send smaller records`, { context })
    case apiCode.insufficientResources:
    case apiCode.storageExceeded:
    case apiCode.memoryExceeded:
    case apiCode.accountResourcesExceeded:
      return new DiskFullError(`${says}. Give JetStream more room, or let topics expire`, { context })
    case apiCode.storeFailed:
      return storeFailure(error, says)
    case apiCode.duplicateInProcess:
    case apiCode.tooManyRequests:
    case apiCode.batchTooMany:
    case apiCode.ingestTooMany:
      return new MillraceError("throttled", says, { context })
    case apiCode.noLeader:
    case apiCode.clusterNotAvailable:
    case apiCode.clusterNoPeers:
    case apiCode.batchIncomplete:
      return new MillraceError("not-leader", says, { context })
    default:
      return byStatus(error, says)
  }
}

/** 10077 carries whatever the store said: a limit that was reached with `discard: new`, or a broken disk. */
function storeFailure(error: ApiError, says: string): MillraceError {
  const context = { errCode: apiCode.storeFailed }
  if (/maximum (bytes|messages)|no space|resource/i.test(error.description ?? "")) {
    return new DiskFullError(`${says}. The stream is at its limit and keeps its old records`, { context })
  }
  return new StorageError(says, { context })
}

function byStatus(error: ApiError, says: string): MillraceError {
  const context = { errCode: error.err_code ?? 0 }
  switch (error.code) {
    case 404:
      return new NotFoundError(says, { context })
    case 403:
      return new PermissionError(says, { context })
    case 400:
      return new InvalidError(says, { context })
    case 429:
    case 503:
      return new MillraceError("throttled", says, { context })
    default:
      return new StorageError(says, { context })
  }
}
