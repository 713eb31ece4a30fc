/**
 * A record as it lies in the spool: payload, key and headers as they are, and what the caller said beside them in a last header
 * `millrace-spool`, which only a record has that needs it: flags (1 partition, 2 its id is the caller's, 4 its time is) and the partition,
 * as varints.
 */
import { type EncodedBatch, Headers, HeaderValue, type WireRecord } from "@millrace/contract"
import type { Route } from "../producer/routing.ts"
import type { PreparedRecord, SendableRecord } from "../record/outgoing-record.ts"
import { JournalReader, JournalWriter } from "./journal-bytes.ts"

/** The header's name. Users cannot give it: the prefix is reserved. */
const spoolHeader: string = "millrace-spool"

const flags = { partition: 1, id: 2, time: 4 } as const

/** The one record that the spool's writers are handed, filled anew each time. */
export class SpooledRecord implements WireRecord {
  payload: Uint8Array | null = null
  key: Uint8Array | null = null
  headers: Headers = Headers.empty
  id: bigint | undefined = undefined
  timestampMicros: bigint | undefined = undefined

  /** @param route Where records without a place of their own go. */
  fill(record: SendableRecord, route: Route): this {
    const own = record instanceof Uint8Array ? undefined : record
    const placed = own !== undefined && (own.partition !== -1 || own.key !== null)
    this.payload = own === undefined ? (record as Uint8Array) : own.payload
    this.key = placed ? own.key : route.kind === "key" ? route.key : null
    this.id = own?.id
    this.timestampMicros = own?.timestampMicros
    const partition = placed ? own.partition : route.kind === "partition" ? route.partition : -1
    const headers = own === undefined ? Headers.empty : own.headers
    const bits =
      (partition === -1 ? 0 : flags.partition) |
      (this.id === undefined ? 0 : flags.id) |
      (this.timestampMicros === undefined ? 0 : flags.time)
    this.headers = bits === 0 ? headers : marked(headers, bits, partition)
    return this
  }

  /** Keeps no user's bytes alive. */
  clear(): void {
    this.payload = null
    this.key = null
    this.headers = Headers.empty
  }
}

/**
 * The record again, as the caller gave it; its bytes are views of the batch.
 * @param keepTimes Whether a record whose caller gave no time carries that of its acceptance.
 */
export function spooledRecord(batch: EncodedBatch, index: number, keepTimes: boolean): SendableRecord {
  const payload = batch.payload(index)
  const key = batch.key(index)
  let headers = batch.headers(index)
  let bits = 0
  let partition = -1
  const mark = headers.size === 0 ? undefined : headers.get(spoolHeader)
  if (mark !== undefined) {
    const reader = new JournalReader(mark.bytes)
    bits = reader.number()
    if ((bits & flags.partition) !== 0) partition = reader.number()
    headers = Headers.ofStored([...headers].filter(([name]) => name !== spoolHeader))
  }
  const hasTime = keepTimes || (bits & flags.time) !== 0
  if (!hasTime && bits === 0 && payload !== null && key === null && headers.size === 0) return payload
  return {
    payload,
    key,
    headers,
    partition,
    id: (bits & flags.id) === 0 ? undefined : batch.id(index),
    timestampMicros: hasTime ? batch.originTimestampMicros(index) : undefined,
  } satisfies PreparedRecord
}

function marked(headers: Headers, bits: number, partition: number): Headers {
  const writer = new JournalWriter()
  writer.number(bits)
  if (partition !== -1) writer.number(partition)
  return Headers.ofStored([...headers, [spoolHeader, HeaderValue.raw(writer.finish().slice())]])
}
