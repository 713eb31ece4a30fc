import { Headers, type HeadersInit, type HeaderValue } from "@millrace/contract"
import type { ContentType, RecordMetadata } from "../record/metadata.ts"

/** The same keys without `readonly`, for builders that fill an object step by step. */
export type Mutable<T> = { -readonly [K in keyof T]: T[K] }

/** Headers and metadata (table 1.11 of the options) that a builder puts on its record, or on every record of its batch. */
export abstract class DescribedBuilder {
  protected readonly ownHeaders: (readonly [string, HeaderValue | string])[] = []
  protected readonly metadata: Mutable<RecordMetadata> = {}

  /** Adds one header; a name may repeat. A bare string is short for `HeaderValue.string`. */
  header(name: string, value: HeaderValue | string): this {
    this.ownHeaders.push([name, value])
    return this
  }

  /** Adds headers in their order. @throws InvalidError for names and values that cannot be headers */
  headers(init: HeadersInit): this {
    for (const entry of Headers.from(init)) this.ownHeaders.push(entry)
    return this
  }

  /** How the payload is encoded. `arrow` needs a schema fingerprint. */
  contentType(contentType: ContentType): this {
    this.metadata.contentType = contentType
    return this
  }

  /** Of the schema that the payload was written with, 0 to 2^32 − 1. */
  schemaId(schemaId: number): this {
    this.metadata.schemaId = schemaId
    return this
  }

  /** Adds one index entry, at most 32 a record: text of 1 to 255 bytes. The same key again replaces its value. */
  index(key: string, value: string): this {
    this.metadata.index = { ...this.metadata.index, [key]: value }
    return this
  }

  /** Whether the payload is part of the record's projection: at most 8 MiB then. */
  inlinePayload(inline: boolean = true): this {
    this.metadata.inlinePayload = inline
    return this
  }

  /** Which projection the record belongs to. */
  projectionRef(reference: string): this {
    this.metadata.projectionRef = reference
    return this
  }
}
