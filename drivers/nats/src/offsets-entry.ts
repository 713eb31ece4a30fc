/** One stored offset: JSON, for people who look into the bucket. Field names are part of the format. */
import { CorruptionError } from "@millrace/contract"

export interface StoredOffset {
  /** The next offset to read; absent while nothing was stored, or after it was deleted. */
  readonly offset: bigint | undefined
  /** The claim that wrote last, or that was given out since: older ones write no more. Absent for named consumers. */
  readonly claim: ClaimMark | undefined
}

/** A claim among all claims of all groups: numbers are unique within a group's id. */
export interface ClaimMark {
  readonly group: string
  readonly number: number
}

const noOffset: StoredOffset = { offset: undefined, claim: undefined }

/** The bytes of an entry. */
export function formatOffset({ offset, claim }: StoredOffset): Uint8Array {
  return new TextEncoder().encode(
    JSON.stringify({
      ...(offset === undefined ? {} : { offset: String(offset) }),
      ...(claim === undefined ? {} : { claim }),
    }),
  )
}

/** @throws CorruptionError */
export function parseOffset(key: string, bytes: Uint8Array | undefined): StoredOffset {
  if (bytes === undefined) return noOffset
  let json: { readonly offset?: unknown; readonly claim?: { readonly group?: unknown; readonly number?: unknown } }
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes))
  } catch (cause) {
    throw new CorruptionError(`the value of ${key} is no stored offset: it is not JSON`, { cause })
  }
  if (typeof json !== "object" || json === null) throw new CorruptionError(`the value of ${key} is no stored offset`)
  const { offset, claim } = json
  const digits = typeof offset === "string" && /^\d{1,20}$/.test(offset)
  const marked = typeof claim?.group === "string" && Number.isSafeInteger(claim.number)
  if ((offset !== undefined && !digits) || (claim !== undefined && !marked)) {
    throw new CorruptionError(`the value of ${key} is no stored offset: ${JSON.stringify(json)}`)
  }
  return {
    offset: digits ? BigInt(offset as string) : undefined,
    claim: marked ? { group: claim?.group as string, number: claim?.number as number } : undefined,
  }
}
