import { Headers, type HeadersInit, type HeaderValue, InvalidError, MillraceError } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { OptionReader, shown } from "../client/options.ts"
import type { Codec } from "../codec/codec.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { thrownText } from "../handler/handler-failure.ts"
import type { SendOptions } from "../producer/producer.ts"
import { checkInlinePayload, mergeMetadata, metadataHeaders, type RecordMetadata } from "../record/metadata.ts"
import { type OutgoingRecord, refuseReserved } from "../record/outgoing-record.ts"

/** Options of a typed topic. */
export interface TypedTopicOptions {
  /**
   * Whether records say how they are encoded, in the header `millrace-ct` (table 1.11), where the codec knows it. What a reader cannot do
   * without, a schema's id or an Arrow fingerprint, is always said. Default true, except under an encryption that has no room for headers.
   */
  readonly describe?: boolean
}

/** What one send of a value may say about its record. */
export interface TypedSendOptions extends SendOptions {
  /** Over what the codec says of the payload; for index entries, a correlation id and the like. */
  readonly metadata?: RecordMetadata
}

/** A value with what is its record's own. */
export interface TypedRecord<T> extends TypedSendOptions {
  /** `null` is a tombstone, whatever the codec. */
  readonly value: T | null
}

/** Makes records of values: the payload by the codec, and the headers that say what it is. */
export class RecordEncoder<T> {
  /** What every payload's record says, when nothing else is to be said. */
  readonly own: Headers
  readonly #codec: Codec<T>
  readonly #static: RecordMetadata
  /** Of a send without options. */
  readonly #plain: SendOptions | undefined

  constructor(codec: Codec<T>, options: { readonly describes: boolean }) {
    this.#codec = codec
    const { contentType } = codec
    const said = contentType !== undefined && (options.describes || codec.describe !== undefined)
    this.#static = said ? { contentType } : {}
    // The fingerprint that some content types need comes with each payload.
    this.own = codec.describe === undefined ? Headers.from(metadataHeaders(this.#static)) : Headers.empty
    this.#plain = this.own.size === 0 ? undefined : Object.freeze({ headers: this.own })
  }

  /** @throws InvalidError when the value has no encoding */
  payload(value: T | null): Uint8Array | null {
    if (value === null) return null
    const { name } = this.#codec
    let payload: unknown
    try {
      payload = this.#codec.encode(value)
    } catch (cause) {
      // What a codec of ours has refused is said already, and that its library is missing is no fault of the value.
      if (cause instanceof MillraceError) throw cause
      throw new InvalidError(`the value does not encode as ${name}: ${thrownText(cause)}`, { cause })
    }
    if (payload instanceof Uint8Array) return payload
    if (payload instanceof Promise) payload.catch(() => {})
    throw new InvalidError(
      `the value does not encode as ${name}: encode must give a Uint8Array at once, not ${shown(payload)}`,
    )
  }

  /**
   * The options of the send: with the headers that say what the payload is, behind those of the caller.
   * @throws InvalidError for options that are unknown, reserved names, and metadata that cannot be right
   */
  options(payload: Uint8Array | null, options: TypedSendOptions | undefined): SendOptions | undefined {
    const codec = this.#codec
    if (options === undefined) {
      if (payload === null) return undefined
      if (codec.describe === undefined) return this.#plain
    }
    const { metadata, ...plain } = checkedOptions(options)
    const said = this.metadata(payload)
    const whole = metadata === undefined ? said : mergeMetadata(said, metadata)
    checkInlinePayload(payload, whole)
    const headers =
      metadata === undefined && payload !== null && codec.describe === undefined ? this.own : metadataHeaders(whole)
    return { ...plain, headers: joined(plain.headers, headers) }
  }

  /** What the codec says of a payload; nothing of a tombstone. */
  metadata(payload: Uint8Array | null): RecordMetadata {
    return payload === null ? {} : { ...this.#static, ...this.#codec.describe?.(payload) }
  }

  /** A value with what is its record's own, as a record. @throws as `payload` and `options` */
  record(record: TypedRecord<T>): OutgoingRecord {
    if (typeof record !== "object" || record === null || !("value" in record)) {
      throw new InvalidError(`a typed record must be an object with a value, not ${shown(record)}`)
    }
    const { value, ...options } = record
    const payload = this.payload(value)
    return { ...this.options(payload, options), payload }
  }

  /** A bare value as a record. @throws as `payload` */
  bare(value: T | null): Uint8Array | OutgoingRecord {
    const payload = this.payload(value)
    const options = this.options(payload, undefined)
    if (payload !== null && options === undefined) return payload
    return { ...options, payload }
  }
}

/** Whether a typed topic says how its records are encoded. */
export function describes(
  context: ClientContext,
  typed: TypedTopicOptions,
  own: Encryptor | false | undefined,
): boolean {
  const encryptor = own ?? context.encryptor
  const roomless = encryptor !== undefined && encryptor !== false && encryptor.format === "iggy"
  return typed.describe ?? !roomless
}

/** @throws InvalidError */
export function checkTypedOptions(what: string, options: TypedTopicOptions | undefined): TypedTopicOptions {
  const reader = new OptionReader<TypedTopicOptions>(what, options, ["describe"])
  if (options?.describe === undefined) return {}
  return { describe: reader.flag("describe", true) }
}

const sendKeys: readonly (keyof TypedSendOptions)[] = [
  "key",
  "partition",
  "headers",
  "id",
  "timestampMicros",
  "metadata",
]

function checkedOptions(options: TypedSendOptions | undefined): TypedSendOptions {
  if (options === undefined) return {}
  new OptionReader<TypedSendOptions>("a typed send", options, sendKeys)
  return options
}

/** The caller's headers, and behind them Millrace's. @throws InvalidError for a name of the caller's that is reserved */
function joined(init: HeadersInit | undefined, own: Headers | (readonly [string, HeaderValue])[]): HeadersInit {
  if (init === undefined) return own
  const headers = Headers.from(init)
  for (const [name] of headers) refuseReserved(name)
  return [...headers, ...own]
}
