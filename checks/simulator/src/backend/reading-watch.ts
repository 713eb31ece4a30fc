import type {
  Anchor,
  Claim,
  MillraceError,
  OffsetEntry,
  OffsetOwner,
  PartitionRead,
  Position,
  ReadLimits,
  TopicPartition,
  Watermarks,
} from "@millrace/contract"
import type { FaultySession } from "./faulty-session.ts"

/** Is told of what consumers do to a backend, so that their promises can be checked from its side. */
export interface ReadingWatch {
  /** What a session was told about stored progress. */
  loaded(session: FaultySession, owner: OffsetOwner, answer: Position | undefined, place: TopicPartition): void
  /** What a session was told about an anchor, or about both ends. */
  located(session: FaultySession, at: Anchor, answer: Position): void
  measured(session: FaultySession, answer: Watermarks): void
  /** A session asks for a store; what it asks of one partition comes in this order. */
  storing(session: FaultySession, owner: OffsetOwner, entry: OffsetEntry): void
  /** The backend has stored an entry, or refuses it. */
  stored(session: FaultySession, owner: OffsetOwner, entry: OffsetEntry, refusal: MillraceError | undefined): void
  /** A session is told that a store has failed, as a whole. */
  unstored(session: FaultySession, owner: OffsetOwner, entry: OffsetEntry, error: MillraceError): void
  /** The backend has forgotten the progress of a partition, or refuses to. */
  deleted(session: FaultySession, owner: OffsetOwner, place: TopicPartition, refusal: MillraceError | undefined): void
  /** A member of a group owns a partition from here on, until `unclaimed`. */
  claimed(claim: Claim, memberId: string): void
  unclaimed(claim: Claim, why: "released" | "lost"): void
  /** A poll begins. @param overlaps Another one of the same reader is under way. */
  polled(session: FaultySession, limits: ReadLimits, overlaps: boolean): void
  /** A poll was answered. */
  answered(session: FaultySession, reads: readonly PartitionRead[]): void
}

/** Looks at nothing. */
export const unwatched: ReadingWatch = {
  loaded: () => {},
  located: () => {},
  measured: () => {},
  storing: () => {},
  stored: () => {},
  unstored: () => {},
  deleted: () => {},
  claimed: () => {},
  unclaimed: () => {},
  polled: () => {},
  answered: () => {},
}
