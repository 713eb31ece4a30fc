/** The contract's work queues over a channel to the engine. */
import {
  ClosedError,
  type QueueBroker,
  type QueueDescription,
  type QueueSession,
  type QueueSpec,
  type TopicName,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { Channel } from "./channel.ts"
import type { OpenedQueue, OpenQueue, QueueName } from "./engine/queues.ts"
import { EmbeddedQueueSession } from "./queue-session.ts"

/** The queues of a session. */
export class EmbeddedQueues implements QueueBroker {
  readonly #channel: Channel
  readonly #clock: Clock
  readonly #sessions = new Set<EmbeddedQueueSession>()
  #closed = false

  constructor({ channel, clock }: { readonly channel: Channel; readonly clock: Clock }) {
    this.#channel = channel
    this.#clock = clock
  }

  async open(topic: TopicName, queue: string, spec: QueueSpec): Promise<QueueSession> {
    const name = plain(topic)
    const args: OpenQueue = { topic: name, queue, spec: plainSpec(spec) }
    const found =
      (await this.#channel.call<OpenedQueue | undefined>("queues.find", args)) ??
      (await this.#channel.call<OpenedQueue>("queues.make", args))
    if (this.#closed) throw new ClosedError("the session is closed")
    const session = new EmbeddedQueueSession({
      channel: this.#channel,
      clock: this.#clock,
      call: { topic: name, queue: found.id, name: queue },
      spec: Object.freeze(found.spec),
      closed: (ended) => this.#sessions.delete(ended),
    })
    this.#sessions.add(session)
    return session
  }

  describe(topic: TopicName, queue: string): Promise<QueueDescription> {
    const args: QueueName = { topic: plain(topic), queue }
    return this.#channel.call("queues.describe", args)
  }

  list(topic: TopicName): Promise<QueueDescription[]> {
    return this.#channel.call("queues.list", plain(topic))
  }

  delete(topic: TopicName, queue: string): Promise<void> {
    const args: QueueName = { topic: plain(topic), queue }
    return this.#channel.call("queues.delete", args)
  }

  /** Ends all takers. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#sessions].map((session) => session.close()))
  }
}

function plain({ stream, topic }: TopicName): TopicName {
  return { stream, topic }
}

function plainSpec({ ackWaitMs, backoffMs, maxDeliver, maxAckPending, ackPolicy, startAt }: QueueSpec): QueueSpec {
  return {
    ackWaitMs,
    backoffMs: [...backoffMs],
    ...(maxDeliver === undefined ? {} : { maxDeliver }),
    ...(maxAckPending === undefined ? {} : { maxAckPending }),
    ackPolicy,
    startAt: { ...startAt },
  }
}
