/** Rows of `staged_batch`, and their ids and bytes where these are asked for. */
import type { MessageId } from "@millrace/contract"
import { CorruptionError } from "@millrace/contract"
import { BatchBody } from "../batch/batch-body.ts"
import { bodyChecksum } from "../batch/checksum.ts"
import type { Access } from "./command.ts"
import type { BatchIds } from "./deduplicate.ts"
import { stagedFlags } from "./staged-append.ts"
import type { Transaction } from "./transaction.ts"

/** A row as a commit reads it: without the bytes. */
export interface StagedRow {
  readonly id: bigint
  readonly topic: bigint
  readonly partition: bigint
  readonly count: bigint
  readonly length: bigint
  readonly checksum: bigint
  readonly batch: Uint8Array
  readonly flags: bigint
  readonly segment: bigint | null
  readonly position: bigint | null
}

/** The columns of `StagedRow`. */
export const stagedColumns: string = "id, topic, partition, count, length, checksum, batch, flags, segment, position"

/** The ids of a staged batch. The bytes are read only for ids that records carry themselves. */
export class StagedIds implements BatchIds {
  readonly count: number
  readonly hasOwnIds: boolean
  /** Whether the records come from a failed publish. */
  readonly resend: boolean
  readonly #transaction: Transaction
  readonly #row: StagedRow
  #body: BatchBody | undefined

  constructor(transaction: Transaction, row: StagedRow) {
    const flags = Number(row.flags)
    this.count = Number(row.count)
    this.hasOwnIds = (flags & stagedFlags.ownIds) !== 0
    this.resend = (flags & stagedFlags.resend) !== 0
    this.#transaction = transaction
    this.#row = row
  }

  get batchId(): MessageId {
    const { buffer, byteOffset } = this.#row.batch
    const view = new DataView(buffer, byteOffset)
    return (view.getBigUint64(0) << 64n) | view.getBigUint64(8)
  }

  id(index: number): MessageId {
    return this.ownId(index) ?? this.batchId + BigInt(index)
  }

  ownId(index: number): MessageId | undefined {
    if (!this.hasOwnIds) return undefined
    this.#body ??= readStagedBody(this.#transaction, this.#row)
    return this.#body.ownId(index)
  }
}

/** The bytes of a staged batch, verified. @throws CorruptionError */
export function readStagedBody(transaction: Transaction, row: StagedRow): BatchBody {
  const bytes = row.segment === null ? inlineBody(transaction, row.id) : new Uint8Array(Number(row.length))
  if (row.segment !== null) {
    const place = { segment: row.segment, position: Number(row.position) }
    if (!transaction.segments.read(place, bytes, transaction.monotonicMs))
      throw damaged(row, `segment ${row.segment} is missing`)
  }
  if (bytes.length !== Number(row.length) || bodyChecksum(bytes) !== Number(row.checksum))
    throw damaged(row, "its checksum does not fit its bytes")
  return new BatchBody(bytes.buffer, bytes.byteOffset, bytes.length)
}

function inlineBody(access: Access, id: bigint): Uint8Array {
  return access.statement("SELECT body FROM staged_batch WHERE id = ?").get(id)?.body as Uint8Array
}

function damaged(row: StagedRow, detail: string): CorruptionError {
  return new CorruptionError(`a staged batch of ${row.count} records is damaged: ${detail}`, {
    context: { batch: row.id, segment: row.segment },
  })
}
