/**
 * How much a consumer reads ahead, and of which partitions. Pure bookkeeping, exact to the record.
 *
 * The budget is shared evenly among the partitions that are being read. One that holds its share is left out of the polls until it is
 * half empty again, so that a loud partition that nobody takes from cannot fill the room of a quiet one. While the budget as a whole
 * is short of room (*tight*), only partitions that hold nothing are polled, for half a share each: a quiet partition is never kept
 * waiting for others to be handed out, and what is held stays below one and a half budgets and a batch a partition.
 */

/** What one partition holds of the read-ahead. */
export class Holding {
  /** Encoded bytes of the batches that are not handed out in full. */
  bytes = 0
  /** Records of the same batches. */
  records = 0
  /** Below its share: it is polled. */
  open = true
}

/** Limits of one poll. */
export interface Room {
  readonly maxBytes: number
  readonly maxRecords: number
}

export interface ReadAheadLimits {
  readonly prefetchBytes: number
  readonly prefetchRecords: number
  /** The most encoded bytes of one poll. */
  readonly maxBytes: number
}

export class ReadAhead {
  readonly #limits: ReadAheadLimits
  #bytes = 0
  #records = 0
  #shareBytes: number
  #shareRecords: number

  constructor(limits: ReadAheadLimits) {
    this.#limits = limits
    this.#shareBytes = limits.prefetchBytes
    this.#shareRecords = limits.prefetchRecords
  }

  /** Encoded bytes that are read ahead of the caller. */
  get bytes(): number {
    return this.#bytes
  }
  get records(): number {
    return this.#records
  }

  /** Whether only partitions that hold nothing are to be polled. */
  get tight(): boolean {
    if (this.#records === 0) return false
    const { maxBytes, prefetchBytes, prefetchRecords } = this.#limits
    // A good part of the budget must be free, so that a slow caller does not cause many small polls.
    return (
      prefetchBytes - this.#bytes < Math.min(maxBytes, prefetchBytes / 2) ||
      prefetchRecords - this.#records < prefetchRecords / 2
    )
  }

  /** What the next poll may bring; at least one record. */
  get room(): Room {
    const { maxBytes, prefetchBytes, prefetchRecords } = this.#limits
    const tight = this.tight
    const bytes = tight ? this.#shareBytes / 2 : prefetchBytes - this.#bytes
    const records = tight ? this.#shareRecords / 2 : prefetchRecords - this.#records
    return {
      maxBytes: Math.max(1, Math.floor(Math.min(bytes, maxBytes))),
      maxRecords: Math.max(1, Math.floor(records)),
    }
  }

  /** So many partitions share the budget from now on. */
  divide(partitions: number): void {
    const count = Math.max(1, partitions)
    this.#shareBytes = this.#limits.prefetchBytes / count
    this.#shareRecords = this.#limits.prefetchRecords / count
  }

  /** A batch was read. */
  took(holding: Holding, bytes: number, records: number): void {
    holding.bytes += bytes
    holding.records += records
    this.#bytes += bytes
    this.#records += records
  }

  /** A batch was handed out in full, or thrown away. @returns whether other partitions are to be polled now */
  gaveBack(holding: Holding, bytes: number, records: number): boolean {
    const tight = this.tight
    holding.bytes -= bytes
    holding.records -= records
    this.#bytes -= bytes
    this.#records -= records
    if (this.tight) return holding.records === 0
    if (holding.open || !this.#halfEmpty(holding)) return tight
    holding.open = true
    return true
  }

  /** Whether a partition that is read is to be polled. */
  polls(holding: Holding): boolean {
    if (holding.open) holding.open = holding.bytes < this.#shareBytes && holding.records < this.#shareRecords
    else holding.open = this.#halfEmpty(holding)
    return this.tight ? holding.records === 0 : holding.open
  }

  #halfEmpty({ bytes, records }: Holding): boolean {
    return records === 0 || (bytes <= this.#shareBytes / 2 && records <= this.#shareRecords / 2)
  }
}
