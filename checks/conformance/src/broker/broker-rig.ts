/** A broker of the test's own behind a proxy, seen through the public API: it can be cut off, killed and started again. */
import type { Server } from "@millrace/servers"
import { type Client, type ConnectOptions, connect, type Message, type Topic, type TopicOptions } from "millrace"
import { until } from "../rig/deadline.ts"
import { text } from "../rig/records.ts"

/** How a broker under test is started, and how others look into it. */
export interface BrokerUnderTest {
  /** One process with a proxy before it. */
  start(): Promise<Server>
  /** The shortest session time-out that its groups take, in ms. */
  readonly sessionTimeoutMs: number
}

/** Sends are tried for longer than any of the outages lasts. */
export const patientPublish: ConnectOptions = {
  publishTimeoutMs: 20_000,
  publishRetries: 200,
  publishRetryBackoffMs: 50,
}

export class BrokerRig {
  readonly under: BrokerUnderTest
  #server: Server | undefined
  readonly #clients = new Set<Client>()
  #names = 0

  constructor(under: BrokerUnderTest) {
    this.under = under
  }

  async open(): Promise<void> {
    this.#server = await this.under.start()
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#clients].map((client) => client.close({ timeoutMs: 2_000 })))
    await this.#server?.stop()
  }

  get server(): Server {
    if (this.#server === undefined) throw new Error("the rig is not open")
    return this.#server
  }

  get proxy(): Server["proxies"][number] {
    const [proxy] = this.server.proxies
    if (proxy === undefined) throw new Error("the server was started without a proxy")
    return proxy
  }

  /** A client through the proxy; closed at the end if the test does not. */
  async connect(options: ConnectOptions = patientPublish): Promise<Client> {
    const client = await connect(this.server.url, options)
    this.#clients.add(client)
    return client
  }

  name(prefix: string): string {
    this.#names++
    return `${prefix}-${this.#names}`
  }

  async topic(client: Client, partitions = 1, options: TopicOptions = {}): Promise<Topic> {
    const topic = client.stream(this.name("stream")).topic(this.name("topic"))
    await topic.ensure(partitions, options)
    return topic
  }

  /** The payloads of a partition from its first record to its present end, read by a client of its own. */
  async stored(topic: Topic, partition = 0): Promise<string[]> {
    const client = await connect(this.server.directUrl)
    try {
      const same = client.stream(topic.stream).topic(topic.name)
      const marks = (await same.watermarks())[partition]
      if (marks === undefined || marks.first === marks.end) return []
      await using reader = same.consumer(undefined, partition, { startAt: { kind: "first" } })
      const texts: string[] = []
      for await (const message of reader) {
        texts.push(text(message.payload))
        if (message.position.offset + 1n >= marks.end) break
      }
      return texts
    } finally {
      await client.close()
    }
  }
}

/** Messages of an iterable, kept as they come. */
export function collect(messages: AsyncIterable<Message>): {
  readonly seen: Message[]
  readonly ended: Promise<unknown>
  /** Waits for so many messages; with `distinct` for so many that are not alike, since some may come again. */
  reaches(count: number, withinMs?: number, options?: { readonly distinct: boolean }): Promise<void>
} {
  const seen: Message[] = []
  const ended = (async () => {
    for await (const message of messages) seen.push(message)
  })().catch((error: unknown) => error)
  return {
    seen,
    ended,
    async reaches(count, withinMs, { distinct } = { distinct: false }) {
      const reached = (): number => (distinct ? new Set(seen.map(({ payload }) => text(payload))).size : seen.length)
      await until(`${count} messages`, () => (reached() >= count ? true : undefined), withinMs)
    },
  }
}
