/** A backend seen through the public API: clients, topics of their own for each test, and everything closed at the end. */
import { randomBytes } from "node:crypto"
import {
  type Client,
  type ConnectOptions,
  type Consumer,
  connect,
  type Message,
  type Topic,
  type TopicOptions,
} from "millrace"
import { patienceMs } from "./deadline.ts"
import { numbered, text } from "./records.ts"

/** What the client suite needs to know of a backend. */
export interface BackendUnderTest {
  /** A connection string that nobody has used before. */
  url(): string | Promise<string>
  /** Why two clients of one URL see different data; absent where they share it. */
  readonly isolated?: string
  /** Why keys go to other partitions than with Kafka's own client; absent where they go to the same. */
  readonly ownKeyHash?: string
  /** How a topic is made that takes less in one record than the server does; absent where topics have no limit of their own. */
  readonly tight?: { readonly options: TopicOptions; readonly limitBytes: number; readonly tooLargeBytes: number }
  /** Removes what `url` made. Called once, after every client is closed. */
  cleanup(): Promise<void>
}

export class ClientRig {
  readonly under: BackendUnderTest
  #url: string | undefined
  #client: Client | undefined
  readonly #others: Set<Client> = new Set()
  /** Servers keep what earlier runs left: names differ between runs. */
  readonly #run = randomBytes(3).toString("hex")
  #names = 0

  constructor(under: BackendUnderTest) {
    this.under = under
  }

  async open(): Promise<void> {
    this.#url = await this.under.url()
    this.#client = await connect(this.#url)
  }

  async close(): Promise<void> {
    await Promise.all([...this.#others].map((client) => client.close()))
    await this.#client?.close()
    await this.under.cleanup()
  }

  /** The client that tests share: each works on topics of its own. */
  get client(): Client {
    if (this.#client === undefined) throw new Error("the rig is not open")
    return this.#client
  }

  get url(): string {
    if (this.#url === undefined) throw new Error("the rig is not open")
    return this.#url
  }

  /** Another client of the same URL, or with `fresh` of one of its own. Closed at the end if the test does not. */
  async connect(where: "same" | "fresh" = "same", options: ConnectOptions = {}): Promise<Client> {
    const client = await connect(where === "same" ? this.url : await this.under.url(), options)
    this.#others.add(client)
    return client
  }

  /** A name that no other test uses. */
  name(prefix: string): string {
    this.#names++
    return `${prefix}-${this.#run}-${this.#names}`
  }

  /** A handle of a topic that does not exist yet. */
  handle(client: Client = this.client): Topic {
    return client.stream(this.name("stream")).topic(this.name("topic"))
  }

  /** A topic that exists. */
  async topic(partitions = 1, options: TopicOptions = {}, client: Client = this.client): Promise<Topic> {
    const topic = this.handle(client)
    await topic.ensure(partitions, options)
    return topic
  }

  /** A topic of one partition with the records r0, r1, …, sent together. */
  async filled(count: number): Promise<Topic> {
    const topic = await this.topic()
    await fill(topic, numbered("r", 0, count))
    return topic
  }

  /** The same topic, through another client. */
  through(client: Client, topic: Topic): Topic {
    return client.stream(topic.stream).topic(topic.name)
  }
}

/** Sends texts one after another to partition 0. */
export async function fill(topic: Topic, payloads: readonly string[], partition = 0): Promise<void> {
  await topic.producer().sendBatch(payloads.map(encode), { partition })
}

/** Batches of one record each, so that trims and positions in time fall between any two. */
export async function fillOneByOne(topic: Topic, payloads: readonly string[], partition = 0): Promise<void> {
  const producer = topic.producer()
  for (const payload of payloads) await producer.send(encode(payload), { partition })
  await producer.shutdown()
}

/** The next `count` messages. What was handed out before counts as handled, the last one not yet. */
export async function take(consumer: Consumer, count: number): Promise<Message[]> {
  const messages: Message[] = []
  while (messages.length < count) messages.push(await consumer.nextWithin(patienceMs))
  return messages
}

export async function takeTexts(consumer: Consumer, count: number): Promise<string[]> {
  return (await take(consumer, count)).map((message) => text(message.payload))
}

/** Fails when something comes. The poll stays under way, as `nextWithin` promises. */
export async function nothingComes(consumer: Consumer, withinMs = 50): Promise<void> {
  let message: Message
  try {
    message = await consumer.nextWithin(withinMs)
  } catch (error) {
    if ((error as { kind?: unknown }).kind === "timeout") return
    throw error
  }
  throw new Error(`nothing was due, but ${message.position.partition}/${message.position.offset} came`)
}

const utf8 = new TextEncoder()

export function encode(payload: string): Uint8Array {
  return utf8.encode(payload)
}

/** Names that differ only in what some backend has to escape, fold or split. */
export const oddNames: readonly string[] = ["a.b", "a/b", "a_b", "A.B", "a*b>", "größe 日本", "%2F", "'a\"b"]
