/** The ways of taking messages from a typed consumer, and what is seen of them. */
import assert from "node:assert/strict"
import { DecodeError, MillraceError } from "@millrace/contract"
import type { TypedConsumer } from "./typed-consumer.ts"
import { TypedDecodeError } from "./typed-decode-error.ts"
import type { TypedOrRawMessage } from "./typed-message.ts"

export type AnyConsumer = TypedConsumer<number, TypedOrRawMessage<number>>

/** What a message is, on one line. */
export function seen(message: TypedOrRawMessage<number>): unknown {
  if (message.kind === "record") return message.value
  return message.kind === "raw" ? `raw ${new TextDecoder().decode(message.value)}` : message.kind
}

/** Every way of taking, each until it has so many messages or an error. */
export const doors: Readonly<Record<string, (consumer: AnyConsumer, count: number) => Promise<unknown[]>>> = {
  async next(consumer, count) {
    const all: unknown[] = []
    while (all.length < count) {
      const result = await consumer.next()
      if (result.done) break
      all.push(seen(result.value))
    }
    return all
  },
  async nextWithin(consumer, count) {
    const all: unknown[] = []
    while (all.length < count) all.push(seen(await consumer.nextWithin(1000)))
    return all
  },
  async stream(consumer, count) {
    const all: unknown[] = []
    for await (const message of consumer.stream()) if (all.push(seen(message)) === count) break
    return all
  },
  async batches(consumer, count) {
    const all: unknown[] = []
    for await (const batch of consumer.batches()) {
      for (const message of batch) all.push(seen(message))
      if (all.length >= count) break
    }
    return all
  },
  async receiveRented(consumer, count) {
    const all: unknown[] = []
    while (all.length < count) {
      using batch = await consumer.receiveRented()
      for (const message of batch) all.push(seen(message))
    }
    return all
  },
}

/** A check that the error is that of the payload `bad` at this offset. */
export function isDecodeErrorAt(offset: bigint): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof TypedDecodeError, String(error))
    assert.ok(error instanceof DecodeError && error instanceof MillraceError)
    assert.deepEqual(error.context, { stream: "s", topic: "t", partition: 0, offset })
    assert.match(error.message, new RegExp(`^offset ${offset} of partition 0 of topic "s/t" does not decode as `))
    assert.equal(new TextDecoder().decode(error.payload as Uint8Array), "bad")
    assert.deepEqual(error.record.position, { partition: 0, offset })
    return true
  }
}
