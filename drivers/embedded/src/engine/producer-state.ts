/**
 * What a partition remembers of one producer, and the rule by which a batch continues, repeats or contradicts it. Pure.
 *
 * Sequences count records, 31 bits, wrapping to 0. The last five batches are remembered, which is as many as may be in flight: a batch
 * that equals one of them in first sequence and count is a resend of it.
 */

const sequences = 2 ** 31

/** As many as `inFlight` of the manifest. */
export const rememberedBatches: number = 5

const entryBytes = 24

/** One batch of a producer and where it went. */
export interface RememberedBatch {
  readonly sequence: number
  readonly count: number
  readonly base: bigint
  readonly timestampMicros: bigint
}

/** One producer as one partition knows it. */
export interface ProducerState {
  readonly epoch: number
  /** The sequence of the record that comes next. */
  readonly sequence: number
  /** Oldest first. */
  readonly recent: readonly RememberedBatch[]
}

/** A batch as its producer numbers it. */
export interface NumberedBatch {
  readonly epoch: number
  readonly sequence: number
  readonly count: number
}

/** `duplicate`: answer what the first one got. `fenced`: a newer epoch was seen. `gap`: another sequence is next. */
export type Verdict =
  | { readonly kind: "append" }
  | { readonly kind: "duplicate"; readonly of: RememberedBatch }
  | { readonly kind: "fenced"; readonly epoch: number }
  | { readonly kind: "gap"; readonly expected: number }

/** What is to be done with a batch. `known` is undefined for a producer that the partition does not know. */
export function judge(known: ProducerState | undefined, batch: NumberedBatch): Verdict {
  if (known === undefined || batch.epoch > known.epoch) {
    return batch.sequence === 0 ? { kind: "append" } : { kind: "gap", expected: 0 }
  }
  if (batch.epoch < known.epoch) return { kind: "fenced", epoch: known.epoch }
  const of = known.recent.find(({ sequence, count }) => sequence === batch.sequence && count === batch.count)
  if (of !== undefined) return { kind: "duplicate", of }
  return batch.sequence === known.sequence ? { kind: "append" } : { kind: "gap", expected: known.sequence }
}

/** The state after a batch was appended at `base`. */
export function remember(
  known: ProducerState | undefined,
  batch: NumberedBatch,
  place: { readonly base: bigint; readonly timestampMicros: bigint },
): ProducerState {
  const before = known !== undefined && known.epoch === batch.epoch ? known.recent : []
  return {
    epoch: batch.epoch,
    sequence: (batch.sequence + batch.count) % sequences,
    recent: [...before.slice(1 - rememberedBatches), { sequence: batch.sequence, count: batch.count, ...place }],
  }
}

/** The remembered batches as bytes: for each u32 sequence, u32 count, i64 base, i64 time; little-endian. */
export function encodeRecent(recent: readonly RememberedBatch[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(recent.length * entryBytes))
  recent.forEach(({ sequence, count, base, timestampMicros }, i) => {
    view.setUint32(i * entryBytes, sequence, true)
    view.setUint32(i * entryBytes + 4, count, true)
    view.setBigInt64(i * entryBytes + 8, base, true)
    view.setBigInt64(i * entryBytes + 16, timestampMicros, true)
  })
  return new Uint8Array(view.buffer)
}

/** The inverse of `encodeRecent`; an incomplete entry at the end is left out. */
export function decodeRecent(bytes: Uint8Array): RememberedBatch[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const recent: RememberedBatch[] = []
  for (let at = 0; at + entryBytes <= bytes.length; at += entryBytes) {
    recent.push({
      sequence: view.getUint32(at, true),
      count: view.getUint32(at + 4, true),
      base: view.getBigInt64(at + 8, true),
      timestampMicros: view.getBigInt64(at + 16, true),
    })
  }
  return recent
}
