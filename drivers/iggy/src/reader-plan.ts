/** How a poll's limits are shared out among partitions. Pure. */

/** A partition that holds more than was read. */
export interface Candidate {
  /** Records between the reader's offset and the known end; at least 1. */
  readonly available: number
  /** What a record takes in a reply, on average; at least 1. An estimate: the protocol bounds polls by records alone. */
  readonly bytesPerRecord: number
}

export interface Share<C extends Candidate> {
  readonly candidate: C
  /** At least 1. */
  readonly records: number
}

/** One request of a poll asks for at most so many bytes, so that a wrong estimate costs little memory. */
const mostBytesOfShare = 8 << 20

/** Replies of one poll that are under way together. */
const mostPolls = 32

/**
 * Equal shares in the order of the candidates: as many as the limits leave room for, at least one. A record that is larger than the
 * limit comes alone. What a short partition leaves of its share goes to those behind it.
 */
export function shareOut<C extends Candidate>(
  candidates: readonly C[],
  limits: { readonly maxRecords: number; readonly maxBytes: number },
): Share<C>[] {
  const shares: Share<C>[] = []
  let recordsLeft = Math.max(1, limits.maxRecords)
  let bytesLeft = limits.maxBytes
  let turnsLeft = Math.min(candidates.length, mostPolls)
  for (const candidate of candidates.slice(0, mostPolls)) {
    const bytes = Math.min(mostBytesOfShare, Math.floor(bytesLeft / turnsLeft))
    const fair = Math.ceil(recordsLeft / turnsLeft)
    const fitting = Math.floor(bytes / candidate.bytesPerRecord)
    const least = shares.length === 0 || bytesLeft >= candidate.bytesPerRecord ? 1 : 0
    const records = Math.min(candidate.available, fair, Math.max(least, fitting))
    turnsLeft--
    if (records < 1 || recordsLeft < 1) continue
    shares.push({ candidate, records })
    recordsLeft -= records
    bytesLeft -= Math.ceil(records * candidate.bytesPerRecord)
  }
  return shares
}
