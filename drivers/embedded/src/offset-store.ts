/** The contract's offset store over a channel to the engine. */
import {
  errorFromWire,
  type MillraceError,
  type OffsetEntry,
  type OffsetOwner,
  type OffsetStore,
  type Position,
  type TopicPartition,
} from "@millrace/contract"
import type { Channel } from "./channel.ts"
import type {
  DeleteOffsets,
  LoadOffsets,
  OffsetKey,
  OffsetOutcome,
  OffsetStoreEntry,
  StoreOffsets,
} from "./engine/offsets.ts"

/** The offsets of a session. */
export class EmbeddedOffsets implements OffsetStore {
  readonly #channel: Channel

  constructor(channel: Channel) {
    this.#channel = channel
  }

  async load(
    owner: OffsetOwner,
    partitions: readonly TopicPartition[],
  ): Promise<(Position | undefined | MillraceError)[]> {
    if (partitions.length === 0) return []
    const args: LoadOffsets = { owner: plainOwner(owner), partitions: partitions.map(plainPlace) }
    return (await this.#channel.call<OffsetOutcome<Position | undefined>[]>("offsets.load", args)).map(fromOutcome)
  }

  async store(owner: OffsetOwner, entries: readonly OffsetEntry[]): Promise<(MillraceError | undefined)[]> {
    if (entries.length === 0) return []
    const args: StoreOffsets = { owner: plainOwner(owner), entries: entries.map(toStoreEntry) }
    return (await this.#channel.call<OffsetOutcome<undefined>[]>("offsets.store", args)).map(fromOutcome)
  }

  async delete(
    owner: OffsetOwner,
    entries: readonly (TopicPartition & { readonly claim?: { readonly token: unknown } })[],
  ): Promise<(MillraceError | undefined)[]> {
    if (entries.length === 0) return []
    const args: DeleteOffsets = { owner: plainOwner(owner), entries: entries.map(toKey) }
    return (await this.#channel.call<OffsetOutcome<undefined>[]>("offsets.delete", args)).map(fromOutcome)
  }
}

function fromOutcome<T>(outcome: OffsetOutcome<T>): T | MillraceError {
  return "error" in outcome ? errorFromWire(outcome.error) : outcome.value
}

/** Callers may hand in larger objects, such as messages; only what the engine needs crosses the thread. */
function plainPlace({ stream, topic, partition }: TopicPartition): TopicPartition {
  return { stream, topic, partition }
}

function plainOwner({ kind, name }: OffsetOwner): OffsetOwner {
  return { kind, name }
}

function toKey(entry: TopicPartition & { readonly claim?: { readonly token: unknown } }): OffsetKey {
  const place = plainPlace(entry)
  return entry.claim === undefined ? place : { ...place, claim: entry.claim.token as number }
}

/** An entry as the engine takes it. */
export function toStoreEntry(entry: OffsetEntry): OffsetStoreEntry {
  return { ...toKey(entry), offset: entry.offset, lineage: entry.lineage }
}
