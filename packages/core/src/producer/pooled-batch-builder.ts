import { InvalidError, type Manifest, RecordTooLargeError } from "@millrace/contract"
import { SlabPool } from "@millrace/runtime"
import { OptionReader, shown } from "../client/options.ts"
import { jsonText } from "../codec/json.ts"
import { checkKey, checkPayload, prepareRecord, type SendableRecord } from "../record/outgoing-record.ts"
import { PooledBatch, PooledContent } from "./pooled-batch.ts"
import { PooledSlabs } from "./pooled-slabs.ts"
import type { SendOptions } from "./producer.ts"

/** What a builder stands on. */
export interface PooledBuilderParts {
  readonly limits: Manifest["limits"]
  readonly pool: SlabPool
  readonly sizeHintBytes: number
  /** What becomes of a record before it counts; it may have bytes of its own. Absent: it stays as it is. */
  readonly seal?: ((record: SendableRecord) => SendableRecord) | undefined
}

/** Where slabs come from unless a test brings its own: one pool for all batches of the process, which keeps 16 MiB at most. */
export const batchPool: SlabPool = new SlabPool()

const utf8 = new TextEncoder()
const largestHintBytes = 1 << 30
const optionKeys: readonly (keyof SendOptions)[] = ["key", "partition", "headers", "id", "timestampMicros"]
const knownOptions: ReadonlySet<string> = new Set(optionKeys)

/**
 * Collects records whose payloads are written straight into pooled buffers: no buffer is allocated for a record (seed 002, "Publishing
 * with rented batches"; table 3.3 of the options). A record that is refused leaves the batch as it was. Dispose a builder that is
 * abandoned before `build`; afterwards disposing does nothing.
 */
export class PooledBatchBuilder implements Disposable {
  readonly #limits: Manifest["limits"]
  readonly #slabs: PooledSlabs
  readonly #seal: PooledBuilderParts["seal"]
  #records: SendableRecord[] = []
  #payloadBytes = 0
  #state: "open" | "writing" | "built" | "disposed" = "open"

  /** @throws InvalidError unless the hint is a whole number of bytes from 1 to 2^30 */
  constructor(parts: PooledBuilderParts) {
    const { sizeHintBytes } = parts
    if (!Number.isInteger(sizeHintBytes) || sizeHintBytes < 1 || sizeHintBytes > largestHintBytes) {
      throw new InvalidError(
        `batchBuilder: sizeHintBytes is ${shown(sizeHintBytes)}; it must be a whole number from 1 to ${largestHintBytes}`,
      )
    }
    this.#limits = parts.limits
    this.#seal = parts.seal
    this.#slabs = new PooledSlabs(parts.pool, sizeHintBytes)
  }

  /** How many records were added. */
  get count(): number {
    return this.#records.length
  }

  /** Of the payloads so far, in bytes. */
  get payloadBytes(): number {
    return this.#payloadBytes
  }

  /**
   * Copies the bytes into the batch; `null` is a tombstone. A key given as bytes is copied too.
   * @throws InvalidError for options or once the batch is built; RecordTooLargeError above a limit of the backend
   */
  add(payload: Uint8Array | null, options?: SendOptions): this
  /**
   * Adds a payload of exactly `length` bytes that `write` fills in place. The target is zeroed before, and must not be used after
   * `write` returned.
   * @throws what `write` throws, and then nothing was added; InvalidError when it returns a promise or uses the builder
   */
  add(length: number, write: (target: Uint8Array) => void, options?: SendOptions): this
  add(
    what: Uint8Array | number | null,
    second?: ((target: Uint8Array) => void) | SendOptions,
    third?: SendOptions,
  ): this {
    if (typeof what !== "number") {
      checkPayload(what, this.#limits)
      return this.#add(() => (what === null ? null : this.#slabs.copy(what)), second as SendOptions | undefined)
    }
    if (typeof second !== "function") {
      throw new InvalidError(`add(length, write) takes a function that fills the bytes, not ${shown(second)}`)
    }
    const length = this.#checkedLength(what)
    return this.#add(() => this.#written(length, second), third)
  }

  /**
   * Writes the value as JSON text in UTF-8, straight into the batch.
   * @throws InvalidError for what JSON has no text for; else as `add`
   */
  addJson(value: unknown, options?: SendOptions): this {
    const text = jsonText(value)
    return this.#add(() => {
      // UTF-8 has at least one byte for each unit: what is far too large is never encoded.
      if (text.length > this.#limits.payloadBytes) checkPayload(utf8.encode(text), this.#limits)
      const payload = this.#slabs.text(text)
      checkPayload(payload, this.#limits)
      return payload
    }, options)
  }

  /** Ends the builder. The batch may be empty. @throws InvalidError when it was built or disposed before */
  build(): PooledBatch {
    this.#assertOpen("build")
    this.#state = "built"
    const batch = new PooledBatch(new PooledContent(this.#records, this.#payloadBytes, this.#slabs))
    this.#records = []
    return batch
  }

  [Symbol.dispose](): void {
    if (this.#state === "built" || this.#state === "disposed") return
    this.#assertOpen("dispose")
    this.#state = "disposed"
    this.#records = []
    this.#slabs.release()
  }

  #add(write: () => Uint8Array | null, options: SendOptions | undefined): this {
    this.#assertOpen("add")
    const { mark } = this.#slabs
    try {
      const payload = write()
      const own = options === undefined && payload !== null ? payload : this.#prepared(payload, options)
      const record = this.#seal === undefined ? own : this.#seal(own)
      this.#records.push(record)
      this.#payloadBytes += (record instanceof Uint8Array ? record : record.payload)?.length ?? 0
      return this
    } catch (error) {
      this.#slabs.rewind(mark)
      throw error
    }
  }

  #prepared(payload: Uint8Array | null, options: SendOptions | undefined): SendableRecord {
    if (options === undefined) return prepareRecord({ payload }, this.#limits)
    checkOptions(options)
    const { key } = options
    if (key === undefined) return prepareRecord({ ...options, payload }, this.#limits)
    return prepareRecord({ ...options, payload, key: this.#key(key) }, this.#limits)
  }

  #key(key: Uint8Array | string): Uint8Array {
    if (typeof key === "string") return key.isWellFormed() ? this.#slabs.text(key) : checkKey(key, this.#limits)
    return key instanceof Uint8Array ? this.#slabs.copy(key) : checkKey(key, this.#limits)
  }

  #written(length: number, write: (target: Uint8Array) => void): Uint8Array {
    const target = this.#slabs.claim(length)
    this.#state = "writing"
    let answer: unknown
    try {
      answer = write(target)
    } finally {
      this.#state = "open"
    }
    if (typeof (answer as { then?: unknown } | null | undefined)?.then === "function") {
      Promise.resolve(answer).catch(() => {})
      throw new InvalidError("add(length, write): write must fill the bytes before it returns; it returned a promise")
    }
    return target
  }

  #checkedLength(length: number): number {
    if (!Number.isInteger(length) || length < 0) {
      throw new InvalidError(`add(length, write): length is ${shown(length)}; it must be a whole number from 0`)
    }
    const { payloadBytes } = this.#limits
    if (length <= payloadBytes) return length
    throw new RecordTooLargeError(`the payload has ${length} bytes; at most ${payloadBytes} are allowed`, {
      context: { sizeBytes: length, limitBytes: payloadBytes },
    })
  }

  #assertOpen(what: string): void {
    if (this.#state === "open") return
    const reason =
      this.#state === "writing" ? "inside a write function: it may only fill its target" : `after it was ${this.#state}`
    throw new InvalidError(`${what}() was called on a batch builder ${reason}`)
  }
}

/** One pass without a reader: most records have options that are known. */
function checkOptions(options: SendOptions): void {
  let isKnown = typeof options === "object" && options !== null && !Array.isArray(options)
  for (const key in options) isKnown &&= knownOptions.has(key)
  if (!isKnown) new OptionReader<SendOptions>("batchBuilder: add", options, optionKeys)
}
