/** Every way of taking typed messages, one at a time, behind one face: what a policy promises holds for all of them. */
import {
  type CommitPolicy,
  type ConsumerEvents,
  type DecodeFailures,
  Json,
  type OnDecodeError,
  type StartAt,
  type Topic,
  type TypedConsumer,
  type TypedGroupReader,
  type TypedOrRawMessage,
} from "millrace"
import { patienceMs, settlesWithin } from "./deadline.ts"
import { storedBy } from "./progress.ts"

/** Numbers as JSON, and nothing else. */
export const numbers: Json<number> = new Json((value) => {
  if (typeof value === "number") return value
  throw new TypeError(`${JSON.stringify(value)} is no number`)
})

type AnyMessage = TypedOrRawMessage<number>
type AnyConsumer = TypedConsumer<number, AnyMessage>

export interface TakerOptions {
  /** Of the consumer or the group. */
  readonly name: string
  readonly commitPolicy: CommitPolicy
  readonly onDecodeError: OnDecodeError
}

/** Somebody who reads partition 0 under a name. */
export interface Taker {
  /** The next message. @throws what the way tells, in its place */
  take(): Promise<AnyMessage>
  /** Says that what was taken is handled, where asking for more or a shutdown does not say it. */
  handled(): Promise<void>
  seek(to: StartAt | "skip"): Promise<void>
  on(listener: Partial<ConsumerEvents>): void
  decodeFailures(): DecodeFailures
  /** The last offset that is stored as handled, as others see it. */
  stored(): Promise<bigint | undefined>
  /** The second call does nothing. */
  shutdown(): Promise<void>
  /** Another one of the same kind and name. */
  reopened(): Promise<Taker>
}

/** A way of taking. */
export interface Way {
  readonly name: string
  /** Whether progress is what is acknowledged, whatever the commit policy. */
  readonly acknowledges?: boolean
  open(topic: Topic, options: TakerOptions): Promise<Taker>
}

/** How a consumer's messages are got out of it, one by one. */
type Taking = (consumer: AnyConsumer) => () => Promise<AnyMessage>

const alone: Readonly<Record<string, Taking>> = {
  next: (consumer) => async () => {
    const result = await consumer.next()
    if (result.done) throw new Error("the consumer has ended")
    return result.value
  },
  nextWithin: (consumer) => () => consumer.nextWithin(patienceMs),
  stream(consumer) {
    let iterator: AsyncIterator<AnyMessage> | undefined
    return async () => {
      iterator ??= consumer.stream()[Symbol.asyncIterator]()
      try {
        const result = await iterator.next()
        if (result.done) throw new Error("the stream has ended")
        return result.value
      } catch (error) {
        // An iteration that has thrown is over.
        iterator = undefined
        throw error
      }
    }
  },
  batches(consumer) {
    let iterator: AsyncIterator<Iterable<AnyMessage>> | undefined
    let messages: AnyMessage[] = []
    return async () => {
      iterator ??= consumer.batches()[Symbol.asyncIterator]()
      try {
        while (messages.length === 0) messages = [...(await iterator.next()).value]
      } catch (error) {
        iterator = undefined
        throw error
      }
      return messages.shift() as AnyMessage
    }
  },
  receiveRented(consumer) {
    let messages: AnyMessage[] = []
    return async () => {
      if (messages.length === 0) {
        using batch = await consumer.receiveRented()
        messages = [...batch].map((message) => message.copy() as AnyMessage)
      }
      return messages.shift() as AnyMessage
    }
  },
  run(consumer) {
    const messages: AnyMessage[] = []
    let running = false
    let failure: { readonly error: unknown } | undefined
    let wake = (): void => {}
    const start = (): void => {
      running = true
      void consumer
        .run((message) => {
          messages.push(message)
          wake()
        })
        .catch((error) => {
          failure = { error }
        })
        .finally(() => {
          running = false
          wake()
        })
    }
    return async () => {
      for (;;) {
        const message = messages.shift()
        if (message !== undefined) return message
        if (failure !== undefined) {
          const { error } = failure
          failure = undefined
          throw error
        }
        if (!running) start()
        await new Promise<void>((resolve) => {
          wake = resolve
          if (messages.length > 0 || failure !== undefined) resolve()
        })
      }
    }
  },
}

export const ways: readonly Way[] = [
  ...Object.entries(alone).map(
    ([name, taking]): Way => ({
      name,
      open: async (topic, options) => aloneTaker(topic, options, taking),
    }),
  ),
  { name: "a member of a group", open: memberTaker },
  { name: "a group's pages", acknowledges: true, open: pagesTaker },
]

function aloneTaker(topic: Topic, options: TakerOptions, taking: Taking): Taker {
  const { name, ...rest } = options
  const consumer = topic.json(numbers).consumer(name, 0, rest)
  return {
    ...consumerTaker(consumer, taking),
    stored: () => storedBy(topic, name),
    reopened: async () => aloneTaker(topic, options, taking),
  }
}

async function memberTaker(topic: Topic, options: TakerOptions): Promise<Taker> {
  const { name, ...rest } = options
  const consumer = await topic.json(numbers).consumerGroup(name).consumer(rest)
  return {
    ...consumerTaker(consumer, alone.nextWithin as Taking),
    stored: () => storedByGroup(topic, name),
    reopened: () => memberTaker(topic, options),
  }
}

function consumerTaker(consumer: AnyConsumer, taking: Taking): Omit<Taker, "stored" | "reopened"> {
  const take = taking(consumer)
  return {
    take: () => settlesWithin("the next typed message", take()),
    handled: async () => {},
    seek: (to) => consumer.seek(0, to),
    on: (listener) => void consumer.on(listener),
    decodeFailures: () => consumer.decodeFailures,
    shutdown: () => consumer.shutdown(),
  }
}

async function pagesTaker(topic: Topic, options: TakerOptions): Promise<Taker> {
  const { name, onDecodeError } = options
  const reader: TypedGroupReader<number, AnyMessage> = await topic.json(numbers).consumerGroup(name).reader({
    onDecodeError,
  })
  let messages: AnyMessage[] = []
  let last: AnyMessage | undefined
  return {
    async take() {
      if (messages.length === 0) messages = [...(await reader.nextWithin(patienceMs)).messages]
      last = messages.shift()
      return last as AnyMessage
    },
    async handled() {
      if (last !== undefined) await reader.ackThrough(last)
    },
    seek: (to) => reader.seek(0, to),
    on: (listener) => void reader.on(listener),
    decodeFailures: () => reader.decodeFailures,
    shutdown: () => reader.shutdown(),
    stored: () => storedByGroup(topic, name),
    reopened: () => pagesTaker(topic, options),
  }
}

async function storedByGroup(topic: Topic, name: string): Promise<bigint | undefined> {
  const { lag } = await topic.consumerGroup(name).describe()
  return lag[0]?.storedOffset
}
