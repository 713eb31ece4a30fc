/** Typed consumers over the fake client, and codecs that fail in every way. */
import type { MillraceError } from "@millrace/contract"
import type { Codec } from "../codec/codec.ts"
import { Json } from "../codec/json.ts"
import type { ConsumerOptions } from "../consumer/consumer-options.ts"
import type { FakeRecord } from "../consumer/fake-log.test-support.ts"
import type { FakeClient } from "../consumer/fake-session.test-support.ts"
import { openConsumer } from "../consumer/partition-consumer.ts"
import type { Message } from "../record/message.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { decodingOf, type OnDecodeError } from "./decoding.ts"
import type { TypedConsumer } from "./typed-consumer.ts"
import type { TypedOrRawMessage } from "./typed-message.ts"

const utf8 = new TextEncoder()

export const numbers: Codec<number> = new Json((value) => {
  if (typeof value === "number") return value
  throw new TypeError(`${JSON.stringify(value)} is not a number`)
})

/** What a decode can do instead of answering: each is an error of its record, and nothing else. */
export const badDecodes: Readonly<Record<string, () => unknown>> = {
  "throws an Error": () => {
    throw new Error("no")
  },
  "throws undefined": () => {
    throw undefined
  },
  "throws what throws when it is looked at": () => {
    throw {
      toString(): string {
        throw new Error("again")
      },
      get message(): string {
        throw new Error("again")
      },
    }
  },
  "answers with a promise that rejects": () => Promise.reject(new Error("late")),
  // biome-ignore lint/suspicious/noThenProperty: that is what is tested
  "answers with a thenable": () => ({ then: (): void => {} }),
}

/** Numbers as text; of the payload `bad` it does what it is told to. */
export function failing(bad: () => unknown): Codec<number> {
  return {
    name: "numbers",
    encode: (value) => utf8.encode(String(value)),
    decode: (payload) => {
      const text = new TextDecoder().decode(payload)
      return text === "bad" ? (bad() as number) : Number(text)
    },
  }
}

/** Decodes nothing before it was prepared for it. */
export class Fetching implements Codec<number> {
  readonly name = "fetched"
  /** With how many messages it was asked, each time that something was missing. */
  readonly asked: number[] = []
  /** Each fetch takes one of these failures, if there is one. */
  readonly failures: MillraceError[] = []
  /** Holds fetches back while set. */
  gate: Promise<void> | undefined
  signal: AbortSignal | undefined
  readonly #known = new Set<string>()

  encode(): Uint8Array {
    return new Uint8Array(0)
  }

  decode(payload: Uint8Array): number {
    const text = new TextDecoder().decode(payload)
    if (!this.#known.has(text)) throw new Error(`${text} was not fetched`)
    return Number(text)
  }

  prepare(messages: readonly Message[], options?: { readonly signal?: AbortSignal }): Promise<void> | undefined {
    this.signal = options?.signal
    const texts = messages.map(({ payload }) => new TextDecoder().decode(payload ?? undefined))
    if (texts.every((text) => this.#known.has(text))) return undefined
    this.asked.push(texts.length)
    return this.#fetch(texts)
  }

  async #fetch(texts: readonly string[]): Promise<void> {
    await this.gate
    const failure = this.failures.shift()
    if (failure !== undefined) throw failure
    for (const text of texts) this.#known.add(text)
  }
}

/** Appends records with these texts as payloads, `null` for a tombstone, in one batch. */
export function putTexts(client: FakeClient, texts: readonly (string | null)[], partition = 0): void {
  const records = texts.map((text): FakeRecord => ({ payload: text === null ? null : utf8.encode(text) }))
  client.log.put(client.place(partition), records)
}

/** The consumer `worker` of partition 0, as the most general of its kinds. */
export function openTyped<T>(
  client: FakeClient,
  of: { readonly codec: Codec<T>; readonly onDecodeError?: OnDecodeError },
  options?: ConsumerOptions,
): TypedConsumer<T, TypedOrRawMessage<T>> {
  const decoding = decodingOf("the consumer", of.codec as Codec<unknown>, of.onDecodeError)
  const source = { topic: client.topic, name: "worker", partition: 0, decoding }
  return openConsumer(client.context, source, options) as unknown as TypedConsumer<T, TypedOrRawMessage<T>>
}

/** A dead-letter topic whose sends end as the test says. */
export class DeadTopic {
  readonly stream = "s"
  readonly name = "dead"
  readonly sent: OutgoingRecord[] = []
  /** Each send waits for it, unless it is absent. */
  gate: Promise<void> | undefined
  ensure = async (): Promise<void> => {}
  batch = async (records: readonly OutgoingRecord[]): Promise<void> => {
    this.sent.push(...records)
    await this.gate
  }
}
