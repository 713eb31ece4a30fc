import {
  type AppendResult,
  FencedError,
  type Identity,
  type Manifest,
  RecordTooLargeError,
  SequenceError,
} from "@millrace/contract"
import type { SimBatch, SimRecord } from "./sim-batch.ts"

/** How many batches of a producer a partition recognises. */
const recentBatches = 5

const sequenceMask = 0x7fff_ffff

interface ProducerState {
  epoch: number
  /** What the next batch has to begin with. */
  sequence: number
  recent: { readonly sequence: number; readonly count: number; readonly result: AppendResult }[]
}

/** An append of one batch as it stands in the log. */
export interface StoredBatch {
  readonly base: number
  readonly records: readonly SimRecord[]
  readonly storedMs: number
}

/** The rules by which a partition takes a batch. */
export interface AppendRules {
  readonly manifest: Manifest
  /** Ids are remembered for so long. */
  readonly windowMs: number
  /** Batches of more records are refused as too large. */
  readonly largestBatch: number
  /** A batch that holds a record with a larger payload is refused as too large. */
  readonly largestRecordBytes: number
  /** Whether an epoch that was raised elsewhere counts here before a batch with it has come. */
  readonly isFenced: (identity: Identity) => boolean
}

/** One history of one partition: what is stored, which producers and ids it remembers. No time of its own, no faults. */
export class PartitionLog {
  readonly records: SimRecord[] = []
  readonly batches: StoredBatch[] = []
  /** When the producers were forgotten, as numbers of records: what lay before could not be told from then on. */
  readonly forgottenAt: number[] = []
  /** Offsets that no reader gets any more: the holes that a backend's compaction leaves. */
  readonly hidden: Set<number> = new Set()
  /** Readers of the partition get an error of this kind instead of records; absent while it is well. */
  sickness: "corruption" | "not-leader" | undefined
  #first = 0
  #producers = new Map<bigint, ProducerState>()
  readonly #ids = new Map<bigint, { readonly offset: number; readonly storedMs: number }>()

  /** The first offset that a reader still gets; what lies below is kept for those who compare. */
  get first(): number {
    return this.#first
  }

  /** The first offset at or behind this one that a reader gets; the end when there is none. */
  visibleFrom(offset: number): number {
    let at = Math.max(offset, this.#first)
    while (at < this.records.length && this.hidden.has(at)) at++
    return Math.max(at, offset)
  }

  /** The batches that hold an offset at or behind this one. */
  *batchesFrom(offset: number): Iterable<StoredBatch> {
    let low = 0
    let high = this.batches.length
    while (low < high) {
      const middle = (low + high) >> 1
      const { base, records } = this.batches[middle] as StoredBatch
      if (base + records.length <= offset) low = middle + 1
      else high = middle
    }
    for (let index = low; index < this.batches.length; index++) yield this.batches[index] as StoredBatch
  }

  /** Gives up whole batches below an offset. */
  trim(before: number): void {
    for (const { base, records } of this.batches) {
      if (base + records.length <= before) this.#first = Math.max(this.#first, base + records.length)
    }
  }

  /** Takes the producers of an earlier history, as a purge does. */
  inherit(older: PartitionLog): void {
    this.#producers = older.#producers
  }

  forgetProducers(): void {
    this.#producers.clear()
    this.forgottenAt.push(this.records.length)
  }

  /** @throws SequenceError, FencedError, RecordTooLargeError; then nothing was stored */
  append(
    batch: SimBatch,
    identity: (Identity & { readonly sequence: number }) | undefined,
    at: { readonly nowMs: number; readonly rules: AppendRules },
  ): AppendResult {
    const { rules, nowMs } = at
    if (identity !== undefined) {
      const echo = this.#checkSequence(batch, identity, rules)
      if (echo !== undefined) return { ...echo, duplicates: told(batch.count, rules) }
    }
    checkSize(batch, rules)
    const looked = this.#lookUp(batch, { nowMs, rules })
    const base = this.records.length
    const fresh = looked.fresh
    for (const record of fresh) {
      if (rules.manifest.append.idLookup !== "none")
        this.#ids.set(record.id, { offset: this.records.length, storedMs: nowMs })
      this.records.push(record)
    }
    if (fresh.length > 0) this.batches.push({ base, records: fresh, storedMs: nowMs })
    const duplicates = told(batch.count - fresh.length, rules)
    const first = fresh.length === batch.count ? base : looked.run
    const result: AppendResult =
      first === undefined ? { contiguous: false, duplicates } : { base: BigInt(first), contiguous: true, duplicates }
    if (identity !== undefined) this.#remember(identity, batch.count, result)
    return result
  }

  #lookUp(
    batch: SimBatch,
    at: { readonly nowMs: number; readonly rules: AppendRules },
  ): { readonly fresh: readonly SimRecord[]; readonly run: number | undefined } {
    const { idLookup } = at.rules.manifest.append
    if (idLookup === "none" || (idLookup === "resend" && !batch.stamp.resend))
      return { fresh: batch.content, run: undefined }
    const known = batch.content.map(({ id }) => {
      const entry = this.#ids.get(id)
      return entry !== undefined && at.nowMs - entry.storedMs <= at.rules.windowMs ? entry.offset : undefined
    })
    const first = known[0]
    const isRun = first !== undefined && known.every((offset, index) => offset === first + index)
    return { fresh: batch.content.filter((_, index) => known[index] === undefined), run: isRun ? first : undefined }
  }

  /** What was answered to a batch that is there already. */
  #checkSequence(
    batch: SimBatch,
    identity: Identity & { readonly sequence: number },
    rules: AppendRules,
  ): AppendResult | undefined {
    const known = this.#producers.get(identity.producerId)
    if (rules.isFenced(identity) || (known !== undefined && known.epoch > identity.epoch)) {
      throw new FencedError(`epoch ${identity.epoch} of producer ${identity.producerId} is old`)
    }
    const begins = known === undefined || identity.epoch > known.epoch
    const echo = begins
      ? undefined
      : known.recent.find(({ sequence, count }) => sequence === identity.sequence && count === batch.count)
    if (echo !== undefined) return echo.result
    const expected = begins ? 0 : known.sequence
    if (identity.sequence === expected) return undefined
    throw new SequenceError(`sequence ${identity.sequence}, expected ${expected}`)
  }

  #remember(identity: Identity & { readonly sequence: number }, count: number, result: AppendResult): void {
    const known = this.#producers.get(identity.producerId)
    const recent = known?.epoch === identity.epoch ? known.recent : []
    this.#producers.set(identity.producerId, {
      epoch: identity.epoch,
      sequence: (identity.sequence + count) & sequenceMask,
      recent: [...recent.slice(1 - recentBatches), { sequence: identity.sequence, count, result }],
    })
  }
}

function checkSize(batch: SimBatch, rules: AppendRules): void {
  if (batch.count > rules.largestBatch) {
    const context = { sizeBytes: batch.count, limitBytes: rules.largestBatch }
    throw new RecordTooLargeError(`a batch of ${batch.count} records is too large`, { context })
  }
  for (const { payload } of batch.content) {
    const sizeBytes = payload?.length ?? 0
    if (sizeBytes <= rules.largestRecordBytes) continue
    const context = { sizeBytes, limitBytes: rules.largestRecordBytes }
    throw new RecordTooLargeError(`a record of ${sizeBytes} bytes is too large`, { context })
  }
}

function told(duplicates: number, { manifest }: AppendRules): number {
  return manifest.append.duplicates === "counted" ? duplicates : 0
}
