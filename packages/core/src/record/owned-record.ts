import type { EncodedBatch, Headers, MessageId } from "@millrace/contract"
import { DecodeError, Headers as HeaderList, HeaderValue, headerKindCodes } from "@millrace/contract"

/** What stands in the place of a record's own payload and headers: what they decrypt to. */
interface OwnContent {
  readonly payload: Uint8Array | null
  readonly headers: Headers | DecodeError
}

/** One record taken out of a batch with copies of its bytes: a batch of one, which keeps nothing of the other alive. */
export class OwnedRecord implements EncodedBatch {
  readonly count: number = 1
  readonly bytes: number
  readonly firstOffset: bigint
  readonly lastOffset: bigint
  readonly #payload: Uint8Array | null
  readonly #key: Uint8Array | null
  readonly #headers: Headers | DecodeError
  readonly #id: MessageId | undefined
  readonly #timestampMicros: bigint
  readonly #originTimestampMicros: bigint | undefined
  readonly #checksum: bigint | undefined

  /** @throws CorruptionError when the record's bytes contradict themselves. */
  constructor(batch: EncodedBatch, index: number, content?: OwnContent) {
    this.#payload = copyOf(content === undefined ? batch.payload(index) : content.payload)
    this.#key = copyOf(batch.key(index))
    this.#headers = copyOfHeaders(() => contentHeaders(content) ?? batch.headers(index))
    this.#id = batch.id(index)
    this.#timestampMicros = batch.timestampMicros(index)
    this.#originTimestampMicros = batch.originTimestampMicros(index)
    this.#checksum = batch.checksum(index)
    this.firstOffset = batch.offset(index)
    this.lastOffset = this.firstOffset
    this.bytes = (this.#payload?.length ?? 0) + (this.#key?.length ?? 0)
  }

  offset(): bigint {
    return this.firstOffset
  }
  indexOf(offset: bigint): number {
    return offset <= this.firstOffset ? 0 : 1
  }
  payload(): Uint8Array | null {
    return this.#payload
  }
  key(): Uint8Array | null {
    return this.#key
  }
  headers(): Headers {
    if (this.#headers instanceof DecodeError) throw this.#headers
    return this.#headers
  }
  id(): MessageId | undefined {
    return this.#id
  }
  timestampMicros(): bigint {
    return this.#timestampMicros
  }
  originTimestampMicros(): bigint | undefined {
    return this.#originTimestampMicros
  }
  checksum(): bigint | undefined {
    return this.#checksum
  }
}

function copyOf(bytes: Uint8Array | null): Uint8Array | null {
  return bytes === null ? null : new Uint8Array(bytes)
}

/** @throws DecodeError when the content has that in place of headers */
function contentHeaders(content: OwnContent | undefined): Headers | undefined {
  if (content?.headers instanceof DecodeError) throw content.headers
  return content?.headers
}

function copyOfHeaders(headersOf: () => Headers): Headers | DecodeError {
  try {
    const entries: [string, HeaderValue][] = []
    for (const [name, value] of headersOf()) {
      entries.push([name, HeaderValue.fromBytes(headerKindCodes[value.kind], new Uint8Array(value.bytes))])
    }
    return HeaderList.ofStored(entries)
  } catch (error) {
    if (error instanceof DecodeError) return error
    throw error
  }
}
