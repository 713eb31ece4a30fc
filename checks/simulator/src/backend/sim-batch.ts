import {
  type BatchStamp,
  type BatchWriter,
  type MessageId,
  RecordTooLargeError,
  type SealedBatch,
  type TopicDescription,
  type WireRecord,
} from "@millrace/contract"

/** A record as the simulated log keeps it: with the id and the time that it ended up with. */
export interface SimRecord extends WireRecord {
  readonly id: MessageId
  readonly timestampMicros: bigint
}

/** What a batch tells of its own life, for whoever watches that none is lost, freed twice or used after that. */
export interface BatchWatch {
  made(batch: SimBatch): void
  released(batch: SimBatch): void
}

/** Bytes that the simulated encoding adds to a record. */
const overheadBytes = 10

/** Collects copies of records: nothing of what it is handed is kept by reference. */
export class SimWriter implements BatchWriter {
  bytes = 0
  readonly #topic: TopicDescription
  readonly #partition: number
  readonly #limits: { readonly records: number; readonly bytes: number; readonly recordBytes: number }
  readonly #watch: BatchWatch
  readonly #records: WireRecord[] = []

  constructor(
    place: { readonly topic: TopicDescription; readonly partition: number },
    limits: { readonly records: number; readonly bytes: number; readonly recordBytes: number },
    watch: BatchWatch,
  ) {
    this.#topic = place.topic
    this.#partition = place.partition
    this.#limits = limits
    this.#watch = watch
  }

  get count(): number {
    return this.#records.length
  }

  tryAppend({ payload, key, headers, id, timestampMicros }: WireRecord): boolean {
    const size = overheadBytes + (payload?.length ?? 0) + (key?.length ?? 0)
    if (size > this.#limits.recordBytes) {
      throw new RecordTooLargeError(`the record has ${size} bytes; at most ${this.#limits.recordBytes} are allowed`, {
        context: { sizeBytes: size, limitBytes: this.#limits.recordBytes },
      })
    }
    const { records, bytes } = this.#limits
    if (this.count > 0 && (this.count >= records || this.bytes + size > bytes)) return false
    this.bytes += size
    this.#records.push({ payload: copied(payload), key: copied(key), headers, id, timestampMicros })
    return true
  }

  seal(stamp: BatchStamp): SealedBatch {
    const content = this.#records.map(({ payload, key, headers, id, timestampMicros }, index) => ({
      payload,
      key,
      headers,
      id: id ?? stamp.id + BigInt(index),
      timestampMicros: timestampMicros ?? stamp.timestampMicros,
    }))
    return new SimBatch(this.#topic, { partition: this.#partition, content, stamp, bytes: this.bytes }, this.#watch)
  }
}

/** A sealed batch that knows whether it was released. */
export class SimBatch implements SealedBatch {
  readonly topic: TopicDescription
  readonly partition: number
  readonly content: readonly SimRecord[]
  readonly stamp: BatchStamp
  readonly bytes: number
  isReleased = false
  readonly #watch: BatchWatch

  constructor(
    topic: TopicDescription,
    parts: {
      readonly partition: number
      readonly content: readonly SimRecord[]
      readonly stamp: BatchStamp
      readonly bytes: number
    },
    watch: BatchWatch,
  ) {
    this.topic = topic
    this.partition = parts.partition
    this.content = parts.content
    this.stamp = parts.stamp
    this.bytes = parts.bytes
    this.#watch = watch
    watch.made(this)
  }

  get count(): number {
    return this.content.length
  }

  records(): WireRecord[] {
    return [...this.content]
  }

  split(): readonly [SealedBatch, SealedBatch] {
    const { topic, partition, stamp, content } = this
    const half = content.length >> 1
    this.release()
    const part = (records: readonly SimRecord[]): SimBatch => {
      const bytes = Math.ceil((this.bytes * records.length) / content.length)
      return new SimBatch(topic, { partition, stamp, content: records, bytes }, this.#watch)
    }
    return [part(content.slice(0, half)), part(content.slice(half))]
  }

  release(): void {
    this.#watch.released(this)
    this.isReleased = true
  }
}

function copied(bytes: Uint8Array | null): Uint8Array | null {
  return bytes === null ? null : new Uint8Array(bytes)
}
