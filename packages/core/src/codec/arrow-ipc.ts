/**
 * Arrow IPC bytes, checked without decoding a value (https://arrow.apache.org/docs/format/Columnar.html, "Encapsulated message format"):
 *
 *     message   int32 −1 (the continuation marker), int32 size of the metadata, metadata (a FlatBuffers Message), body
 *     stream    a schema message, then dictionary and record batches, then int32 −1, int32 0 or the end of the bytes
 *     file      "ARROW1" and two zero bytes, a stream, the footer, int32 size of the footer, "ARROW1"; the footer has the schema, which
 *               some writers leave out of the stream before it
 */
import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { FlatTable } from "./arrow-flatbuffer.ts"
import { type ArrowSchema, arrowSchema } from "./arrow-schema.ts"

/** What Arrow IPC bytes hold. */
export interface ArrowDescription {
  readonly format: "stream" | "file"
  /** 32 bytes: SHA-256 over what the schema says, the same whichever Arrow implementation wrote it. */
  readonly schemaFingerprint: Uint8Array
  /** Of the whole. */
  readonly encodedBytes: number
  /** Of the top level of the schema. */
  readonly fields: number
  readonly recordBatches: number
  /** Of all record batches. */
  readonly rows: bigint
  /** Dictionary batches, deltas and replacements counted. */
  readonly dictionaries: number
}

const magic = new TextEncoder().encode("ARROW1")
const fileHeaderBytes = 8
const prefixBytes = 8
/** The size of the footer and the magic. */
const fileTrailerBytes = 4 + magic.length

const messageSlots = { headerType: 1, header: 2, bodyLength: 3 } as const
const headerTypes = { schema: 1, dictionaryBatch: 2, recordBatch: 3 } as const
const batchSlots = { length: 0, nodes: 1, buffers: 2, compression: 3 } as const
/** Where a dictionary batch has its values, as a record batch of one column. */
const dictionaryDataSlot = 1
const footerSlots = { schema: 1, dictionaries: 2, recordBatches: 3 } as const
/** A Block of the footer: int64 offset, int32 metadata length and padding, int64 body length. */
const blockBytes = 24

/** One record or dictionary batch, as its message says it. */
export interface ArrowBatch {
  /** Where its message is. */
  readonly at: number
  readonly bodyBytes: number
  readonly isCompressed: boolean
  /** The most values that one of its columns, or one inside of a column, has. */
  readonly longest: bigint
}

/**
 * Describes one self-contained Arrow IPC stream or file. Its framing is followed to the end: markers, lengths, the schema first and
 * once, buffers inside of the body of their batch. Values are not looked at.
 * @param onBatch Sees each batch, and may throw.
 * @throws InvalidError that says what is wrong, and at which byte
 */
export function describeArrowIpc(bytes: Uint8Array, onBatch?: (batch: ArrowBatch) => void): ArrowDescription {
  if (!(bytes instanceof Uint8Array)) throw new InvalidError(`Arrow IPC must be a Uint8Array, not ${shown(bytes)}`)
  const isFile = startsWith(bytes, magic)
  try {
    return isFile ? describeFile(bytes, onBatch) : describeStream(bytes, onBatch)
  } catch (error) {
    if (error instanceof InvalidError) throw error
    // FlatTable reads outside the bytes, or text that is no UTF-8.
    if (error instanceof RangeError || error instanceof TypeError)
      throw malformed(`its metadata: ${error.message}`, error)
    throw error
  }
}

function describeStream(bytes: Uint8Array, onBatch?: (batch: ArrowBatch) => void): ArrowDescription {
  const walk = new MessageWalk(undefined, onBatch)
  const end = walk.follow(bytes, 0, bytes.length)
  if (end !== bytes.length) throw malformed(`${bytes.length - end} bytes follow its end at byte ${end}`)
  return description("stream", bytes, walk)
}

function describeFile(bytes: Uint8Array, onBatch?: (batch: ArrowBatch) => void): ArrowDescription {
  if (bytes.length < fileHeaderBytes + fileTrailerBytes || !startsWith(bytes.subarray(-magic.length), magic)) {
    throw malformed(`a file must end with "ARROW1"; it is cut off, or not whole`)
  }
  const view = viewOf(bytes)
  const footerEnd = bytes.length - fileTrailerBytes
  const footerBytes = view.getInt32(footerEnd, true)
  const footerStart = footerEnd - footerBytes
  if (footerBytes <= 0 || footerStart < fileHeaderBytes) throw malformed(`its footer cannot have ${footerBytes} bytes`)
  const footer = FlatTable.root(bytes.subarray(footerStart, footerEnd))
  const schema = footer.table(footerSlots.schema)
  if (schema === undefined) throw malformed("its footer has no schema")
  const walk = new MessageWalk(arrowSchema(schema), onBatch)
  walk.follow(bytes, fileHeaderBytes, footerStart)
  const listed = {
    dictionaries: footer.count(footerSlots.dictionaries, blockBytes),
    recordBatches: footer.count(footerSlots.recordBatches, blockBytes),
  }
  if (listed.dictionaries !== walk.dictionaries || listed.recordBatches !== walk.recordBatches) {
    throw malformed(`its footer lists ${counted(listed)}, but it holds ${counted(walk)}`)
  }
  return description("file", bytes, walk)
}

/** What was met on the way through the messages of a stream. */
class MessageWalk {
  /** The schema's, or for a file at first the footer's. */
  schema: ArrowSchema | undefined
  recordBatches = 0
  rows = 0n
  dictionaries = 0
  #messages = 0
  readonly #onBatch: ((batch: ArrowBatch) => void) | undefined

  constructor(schema: ArrowSchema | undefined, onBatch: ((batch: ArrowBatch) => void) | undefined) {
    this.schema = schema
    this.#onBatch = onBatch
  }

  /** Follows the messages from `start` to the end marker or to `limit`; answers where what belongs to them ends. */
  follow(bytes: Uint8Array, start: number, limit: number): number {
    const view = viewOf(bytes)
    let at = start
    while (at < limit) {
      if (limit - at < prefixBytes) throw malformed(`${limit - at} bytes at byte ${at} are too few for a message`)
      if (view.getInt32(at, true) !== -1) throw malformed(`no continuation marker at byte ${at}`)
      const metadataBytes = view.getInt32(at + 4, true)
      if (metadataBytes === 0) return this.#ended(at + prefixBytes)
      const body = at + prefixBytes + metadataBytes
      if (metadataBytes < 0 || body > limit) {
        throw malformed(`the metadata at byte ${at} cannot have ${metadataBytes} bytes`)
      }
      const message = FlatTable.root(bytes.subarray(at + prefixBytes, body))
      const bodyBytes = message.int64(messageSlots.bodyLength)
      if (bodyBytes < 0n || bodyBytes > BigInt(limit - body)) {
        throw malformed(`the message at byte ${at} has a body of ${bodyBytes} bytes, but only ${limit - body} follow`)
      }
      this.#take(message, { at, bodyBytes: Number(bodyBytes) })
      at = body + Number(bodyBytes)
    }
    return this.#ended(at)
  }

  #take(message: FlatTable, { at, bodyBytes }: { readonly at: number; readonly bodyBytes: number }): void {
    const type = message.uint8(messageSlots.headerType, 0)
    const header = message.table(messageSlots.header)
    if (header === undefined) throw malformed(`the message at byte ${at} is empty`)
    const isFirst = this.#messages++ === 0
    if (type === headerTypes.schema) {
      if (!isFirst) throw malformed(`the message at byte ${at} is a second schema`)
      this.#takeSchema(arrowSchema(header))
    } else if (this.schema === undefined) {
      throw malformed(`it begins with a message of type ${type}; the schema comes first`)
    } else if (type === headerTypes.recordBatch) {
      const rows = header.int64(0)
      if (rows < 0n) throw malformed(`the record batch at byte ${at} has ${rows} rows`)
      this.recordBatches++
      this.rows += rows
      this.#takeBatch(header, { at, bodyBytes })
    } else if (type === headerTypes.dictionaryBatch) {
      this.dictionaries++
      const data = header.table(dictionaryDataSlot)
      if (data !== undefined) this.#takeBatch(data, { at, bodyBytes })
    } else {
      throw malformed(`the message at byte ${at} has the type ${type}, which is no batch`)
    }
  }

  #takeBatch(batch: FlatTable, { at, bodyBytes }: { readonly at: number; readonly bodyBytes: number }): void {
    for (const [offset, length] of batch.pairs(batchSlots.buffers)) {
      if (offset < 0n || length < 0n || offset + length > BigInt(bodyBytes)) {
        throw malformed(`the batch at byte ${at} has ${length} bytes at ${offset} of a body of ${bodyBytes} bytes`)
      }
    }
    let longest = batch.int64(batchSlots.length)
    for (const [length, nulls] of batch.pairs(batchSlots.nodes)) {
      if (length < 0n || nulls < 0n || nulls > length) {
        throw malformed(`the batch at byte ${at} has a column of ${length} values, ${nulls} of them null`)
      }
      if (length > longest) longest = length
    }
    const isCompressed = batch.table(batchSlots.compression) !== undefined
    this.#onBatch?.({ at, bodyBytes, isCompressed, longest })
  }

  #takeSchema(schema: ArrowSchema): void {
    const { schema: known } = this
    if (known !== undefined && !startsWith(known.fingerprint, schema.fingerprint)) {
      throw malformed("the schemas of its footer and of its stream differ")
    }
    this.schema = schema
  }

  #ended(at: number): number {
    if (this.schema === undefined) throw malformed("it has no schema")
    return at
  }
}

function description(format: "stream" | "file", bytes: Uint8Array, walk: MessageWalk): ArrowDescription {
  const { fingerprint, fields } = walk.schema as ArrowSchema
  const { recordBatches, rows, dictionaries } = walk
  return {
    format,
    schemaFingerprint: fingerprint,
    encodedBytes: bytes.length,
    fields,
    recordBatches,
    rows,
    dictionaries,
  }
}

function counted(counts: { readonly dictionaries: number; readonly recordBatches: number }): string {
  return `${counts.recordBatches} record batches and ${counts.dictionaries} dictionaries`
}

function startsWith(bytes: Uint8Array, prefix: Uint8Array): boolean {
  return bytes.length >= prefix.length && prefix.every((byte, index) => bytes[index] === byte)
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function malformed(what: string, cause?: Error): InvalidError {
  return new InvalidError(`the bytes are not whole Arrow IPC: ${what}`, cause === undefined ? {} : { cause })
}
