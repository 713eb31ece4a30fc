import {
  NotFoundError,
  type QueueBroker,
  type QueueDescription,
  type QueueSpec,
  type TopicName,
} from "@millrace/contract"
import type { FaultyBackend } from "./faulty-backend.ts"
import { SimQueue } from "./sim-queue.ts"
import { type QueueLine, SimQueueSession } from "./sim-queue-session.ts"

/** The queues that a backend has, by topic and name. They end with the topic that they were made over. */
export class QueueBook {
  readonly #backend: FaultyBackend
  readonly #queues = new Map<string, { readonly queue: SimQueue; readonly incarnation: number }>()

  constructor(backend: FaultyBackend) {
    this.#backend = backend
  }

  /** The queue, if there is one. */
  find(name: TopicName, queue: string): SimQueue | undefined {
    const found = this.#queues.get(keyOf(name, queue))
    return found?.incarnation === this.#backend.find(name)?.incarnation ? found?.queue : undefined
  }

  /** @throws NotFoundError for the topic, InvalidError when it has other settings */
  open(name: TopicName, queue: string, spec: QueueSpec): SimQueue {
    const { incarnation } = this.#backend.topic(name)
    const found = this.find(name, queue)
    if (found !== undefined) {
      found.checkSpec(spec)
      return found
    }
    const backend = this.#backend
    const made = new SimQueue(queue, spec, {
      get nowMs() {
        return backend.clock.monotonicMs()
      },
      topic: () => {
        const topic = backend.find(name)
        return topic?.incarnation === incarnation ? topic : undefined
      },
    })
    this.#queues.set(keyOf(name, queue), { queue: made, incarnation })
    return made
  }

  /** @throws NotFoundError */
  get(name: TopicName, queue: string): SimQueue {
    this.#backend.topic(name)
    const found = this.find(name, queue)
    if (found === undefined) throw new NotFoundError(`queue "${queue}" of topic "${name.topic}" does not exist`)
    return found
  }

  list(name: TopicName): QueueDescription[] {
    const { incarnation } = this.#backend.topic(name)
    const prefix = keyOf(name, "")
    return [...this.#queues]
      .filter(([key, one]) => key.startsWith(prefix) && one.incarnation === incarnation)
      .map(([, { queue }]) => queue.describe())
      .sort((a, b) => (a.queue < b.queue ? -1 : 1))
  }

  /** @throws NotFoundError */
  delete(name: TopicName, queue: string): void {
    this.get(name, queue).delete()
    this.#queues.delete(keyOf(name, queue))
    this.#backend.changed()
  }

  /** The machine has crashed: see `SimQueue.crash`. */
  crash(): void {
    for (const { queue } of this.#queues.values()) queue.crash()
    this.#backend.changed()
  }
}

/** Queues as one session sees them. */
export function queueBroker(
  backend: FaultyBackend,
  line: QueueLine,
  opened: (one: SimQueueSession) => void,
): QueueBroker {
  const { queues } = backend
  return {
    open: async (name, queue, spec) => {
      const found = await line.ask("queue", () => queues.open(name, queue, spec))
      const session = new SimQueueSession(line, name, found)
      opened(session)
      return session
    },
    describe: (name, queue) => line.ask("queue", () => queues.get(name, queue).describe()),
    list: (name) => line.ask("queue", () => queues.list(name)),
    delete: (name, queue) => line.ask("queue", () => queues.delete(name, queue)),
  }
}

function keyOf({ stream, topic }: TopicName, queue: string): string {
  return `${stream}/${topic}\n${queue}`
}
