/** What the compiler knows of typed handles. Each function is compiled with the package, and called by nobody but the last test. */
import assert from "node:assert/strict"
import { test } from "node:test"
import { z } from "zod"
import type { Topic } from "../client/topic.ts"
import { Json } from "../codec/json.ts"
import type { Consumer } from "../consumer/consumer.ts"
import type { DeadLetterPolicy } from "../handler/dead-letter.ts"
import type { Message } from "../record/message.ts"
import type { TypedConsumer, TypedConsumerOptions } from "./typed-consumer.ts"
import type { TypedMessage, TypedOrRawMessage } from "./typed-message.ts"
import type { TypedTopic } from "./typed-topic.ts"

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
/** Compiles where the types are the same. */
function same<A, B>(_proof: Same<A, B>): void {}

interface Reading {
  readonly sensor: string
  readonly celsius: number
}

const readings = new Json<Reading>((value) => value as Reading)
const schema = z.object({ id: z.number(), when: z.string().transform((text) => text.length) })

export async function values(topic: Topic): Promise<void> {
  const typed = topic.json(readings)
  same<typeof typed, TypedTopic<Reading>>(true)
  await typed.publish({ sensor: "a", celsius: 1 })
  await typed.publish(null)
  // @ts-expect-error a field is missing
  await typed.publish({ sensor: "a" })
  const producer = typed.producer()
  await producer.sendBatch([{ sensor: "a", celsius: 1 }, null])
  await producer.sendRecords([{ value: { sensor: "a", celsius: 1 }, key: "k" }])
  // @ts-expect-error bare values go to sendBatch
  await producer.sendRecords([{ sensor: "a", celsius: 1 }])
  // @ts-expect-error keys of single values go to sendRecords
  await producer.sendBatch([{ value: { sensor: "a", celsius: 1 }, key: "k" }])
  for await (const result of (await typed.records("r")).stream()) {
    if (result.kind === "record") same<typeof result.value, Reading>(true)
  }
}

export async function schemas(topic: Topic): Promise<void> {
  const typed = topic.json(schema)
  same<typeof typed, TypedTopic<{ id: number; when: number }>>(true)
  const result = await (await typed.records("r")).next()
  if (result.kind === "record") same<typeof result.value.when, number>(true)
  // @ts-expect-error only a record has a value
  result.value
}

export async function messages(
  topic: Topic,
  anyOptions: TypedConsumerOptions,
  policy: DeadLetterPolicy,
): Promise<void> {
  const typed = topic.json(readings)
  const consumer = typed.consumer("c", 0)
  same<typeof consumer, TypedConsumer<Reading>>(true)
  const message = await consumer.nextWithin(1)
  same<typeof message, TypedMessage<Reading>>(true)
  if (message.kind === "record") same<typeof message.value, Reading>(true)
  else same<typeof message.payload, null>(true)
  same<typeof message.value, Reading | undefined>(true)
  // @ts-expect-error nothing is raw where nobody asked for it
  void (message.kind === "raw")
  same<ReturnType<typeof dead>, TypedConsumer<Reading>>(true)
  function dead() {
    return typed.consumer("c", 0, { onDecodeError: policy, batchLength: 1 })
  }
  const raw = typed.consumer("c", 0, { onDecodeError: "deliver-raw" })
  const one = await raw.nextWithin(1)
  same<typeof one, TypedOrRawMessage<Reading>>(true)
  if (one.kind === "raw") same<typeof one.value, Uint8Array>(true)
  const unknown = typed.consumer("c", 0, anyOptions)
  same<typeof unknown, TypedConsumer<Reading, TypedOrRawMessage<Reading>>>(true)
  const member = await typed.consumerGroup("g").consumer({ onDecodeError: "skip" })
  await member.run((handled, context) => {
    same<typeof handled, TypedMessage<Reading>>(true)
    context.stop()
  })
  for await (const batch of member.batches())
    for (const inside of batch) same<typeof inside, TypedMessage<Reading>>(true)
  using rented = await member.receiveRented()
  same<ReturnType<typeof rented.message>, TypedMessage<Reading>>(true)
  const pages = await typed.consumerGroup("g").reader({ onDecodeError: "deliver-raw" })
  const page = await pages.nextWithin(1)
  same<(typeof page.messages)[number], TypedOrRawMessage<Reading>>(true)
  // A typed consumer goes wherever a consumer goes.
  const plain: Consumer = consumer
  const bytes: Message = message
  void [plain, bytes]
}

test("the types are what the functions above say, since they compile", () => {
  assert.equal([values, schemas, messages].length, 3)
})
