import type { MillraceError, Settlement } from "@millrace/contract"
import type { FaultySession } from "./faulty-session.ts"
import type { QueueToken, SimQueue } from "./sim-queue.ts"

/** Is told of what takers do to queues, so that their promises can be checked from the backend's side. */
export interface QueueWatch {
  /** The backend hands a message out: the session may hear of it, or not. */
  handedOut(session: FaultySession, queue: SimQueue, token: QueueToken): void
  /** The answer with it has reached the session. */
  heard(session: FaultySession, queue: SimQueue, token: QueueToken): void
  /** A session asks for a settlement. */
  settling(session: FaultySession, queue: SimQueue, settlement: Settlement, confirm: boolean): void
  /** The backend has decided on it: whether it counts. */
  settled(session: FaultySession, queue: SimQueue, settlement: Settlement, counts: boolean): void
  /** The session hears: whether it counts, or why that is not known. */
  answered(session: FaultySession, settlement: Settlement, outcome: boolean | MillraceError): void
}

/** Looks at nothing. */
export const unwatchedQueues: QueueWatch = {
  handedOut: () => {},
  heard: () => {},
  settling: () => {},
  settled: () => {},
  answered: () => {},
}
