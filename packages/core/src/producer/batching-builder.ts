import type { TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import { OptionReader } from "../client/options.ts"
import { checkKey } from "../record/outgoing-record.ts"
import { BatchingProducer } from "./batching-producer.ts"

interface BatchingOptions {
  readonly maxRecords?: number
  readonly maxBytes?: number
  readonly linger?: number
}

const leastLingerMs = 1

/** Sets a batching producer up: `topic.batching().maxRecords(100).build()`. Values are checked as they are given (table 1.4). */
export class BatchingBuilder {
  readonly #client: ClientContext
  readonly #name: TopicName
  #maxRecords = 512
  #maxBytes = 1_048_576
  #lingerMs = 5
  #partitionKey: Uint8Array | undefined

  constructor(client: ClientContext, name: TopicName) {
    this.#client = client
    this.#name = name
  }

  /** Flushes when so many records wait, from 1. Default 512. @throws InvalidError */
  maxRecords(count: number): this {
    this.#maxRecords = this.#read("maxRecords", count).whole("maxRecords", { min: 1, fallback: this.#maxRecords })
    return this
  }

  /** Flushes when the payloads that wait have so many bytes, from 1. Default 1 MiB. @throws InvalidError */
  maxBytes(bytes: number): this {
    this.#maxBytes = this.#read("maxBytes", bytes).whole("maxBytes", { min: 1, fallback: this.#maxBytes })
    return this
  }

  /** How long a record waits at most, in ms from 0; below 1 ms it is 1 ms. Default 5. @throws InvalidError */
  linger(ms: number): this {
    const given = this.#read("linger", ms).duration("linger", { zero: true, fallback: this.#lingerMs })
    this.#lingerMs = Math.max(leastLingerMs, given)
    return this
  }

  /** Routes every record of the producer by this key, which is stored with them. Default: balanced. @throws InvalidError */
  partitionKey(key: Uint8Array | string): this {
    this.#partitionKey = checkKey(key, this.#client.session.manifest.limits).slice()
    return this
  }

  /** The producer, open until it or the client is closed. @throws ClosedError */
  build(): BatchingProducer {
    return new BatchingProducer(this.#client, this.#name, {
      maxRecords: this.#maxRecords,
      maxBytes: this.#maxBytes,
      lingerMs: this.#lingerMs,
      partitionKey: this.#partitionKey,
    })
  }

  #read(key: keyof BatchingOptions, value: number): OptionReader<BatchingOptions> {
    const owner = `batching producer of topic "${topicText(this.#name)}"`
    return new OptionReader<BatchingOptions>(owner, { [key]: value }, [key])
  }
}
