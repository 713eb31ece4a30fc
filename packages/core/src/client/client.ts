import { InvalidError, type Manifest, type PreparedTransaction, type Session } from "@millrace/contract"
import type { ProducerReport } from "../observe/producer-report.ts"
import { readReports } from "../observe/producer-reports.ts"
import type { TopicRef } from "../producer/producer.ts"
import type { SchemaRegistry } from "../schema/schema.ts"
import { openProcessor } from "../transaction/open-processor.ts"
import { preparedTransactions } from "../transaction/prepared-transactions.ts"
import type { ProcessOptions } from "../transaction/process-options.ts"
import type { Processor } from "../transaction/processor.ts"
import type { TransactionalOptions } from "../transaction/transactional-options.ts"
import { TransactionalProducer } from "../transaction/transactional-producer.ts"
import { type ClientOptions, checkClientOptions } from "./client-options.ts"
import { type ClientRuntime, LiveContext } from "./live-context.ts"
import { OptionReader, shown } from "./options.ts"
import { ownStream } from "./own-topic.ts"
import { listed, Stream, type StreamInfo, streamInfo } from "./stream.ts"
import { Topic } from "./topic.ts"

/** How long `close` may take. */
export interface CloseOptions {
  /** For everything together, in ms. Default 30,000. */
  readonly timeoutMs?: number
}

const defaultCloseMs = 30_000

/** A connection to one backend, and the way to everything on it. */
export class Client implements AsyncDisposable {
  readonly #context: LiveContext
  readonly #defaultStream: string | undefined

  /** Made by `openClient`. */
  constructor(context: LiveContext, defaultStream: string | undefined) {
    this.#context = context
    this.#defaultStream = defaultStream
  }

  /** What this backend can do. */
  get manifest(): Manifest {
    return this.#context.manifest
  }

  /** The driver's own client underneath, for what Millrace does not expose. */
  get native(): unknown {
    return this.#context.session.native
  }

  /** Schemas by id, and by subject and version: in the backend's small state, unless the client was opened with another registry. */
  get schemas(): SchemaRegistry {
    return this.#context.schemas
  }

  /** @throws InvalidError for the name */
  stream(name: string): Stream {
    return new Stream(this.#context, name)
  }

  /**
   * A topic of the default stream. Without one: the backend's own topic of exactly this name, where its topics need no stream.
   * @throws InvalidError for the name, and without a default stream where topics belong to streams
   */
  topic(name: string): Topic {
    if (this.#defaultStream === undefined && this.manifest.catalog.streams === "objects") {
      throw new InvalidError(
        `topic ${shown(name)} needs a stream: ${this.manifest.backend} keeps topics in streams. ` +
          `Use client.stream(name).topic(${shown(name)}), or set a default with connect(url, { stream }) or MILLRACE_STREAM`,
      )
    }
    return new Topic(this.#context, { stream: this.#defaultStream ?? "", topic: name })
  }

  /** The streams that exist when the iteration begins, but for `millrace`, which holds Millrace's own topics. */
  streams(): AsyncIterable<StreamInfo> {
    return listed(this.#context, async () => {
      const streams = await this.#context.session.catalog.listStreams()
      return streams.filter(({ stream }) => stream !== ownStream).map(streamInfo)
    })
  }

  /**
   * What the producers of a topic report of themselves, in every process that uses the same backend, by instance; those of this client
   * as they are now, others as they were at their last report. A producer that has sent nothing is not among them. Reads the reports of
   * the last few minutes, 10,000 at the most, for 5 s at the most.
   * @throws ClosedError, and what keeps the backend from being read; a report that is damaged is passed over
   */
  async producers(topic: TopicRef): Promise<ProducerReport[]> {
    this.#context.assertOpen()
    return await readReports(this.#context, { stream: topic.stream, topic: topic.name })
  }

  /**
   * A producer whose records appear together or not at all, across topics, with a consumer's progress if need be. Call `init` first.
   * @throws InvalidError for the options, UnsupportedError where the backend has no transactions; ClosedError
   */
  transactionalProducer(options: TransactionalOptions): TransactionalProducer {
    return new TransactionalProducer(this.#context, options)
  }

  /**
   * The transactions that are prepared and wait to be ended, with their age, whoever prepared them, oldest first. One ends by
   * `init({ keepPrepared: true })` and `complete(token)` of a producer with its id; `complete("")` aborts it.
   * @throws UnsupportedError where the backend has no transactions; ClosedError
   */
  async transactions(): Promise<PreparedTransaction[]> {
    this.#context.assertOpen()
    return await preparedTransactions(this.#context)
  }

  /**
   * Consumes, transforms and produces exactly once: what a batch of messages makes is stored in one transaction with the group's progress
   * over them, so that after a crash anywhere each message has its outputs once. Begins at once; `done` tells how it ends.
   * @throws InvalidError for an option, UnsupportedError where the backend has no transactions, or none that hold offsets; ClosedError
   */
  process<I extends TopicRef, O extends TopicRef | undefined = undefined>(options: ProcessOptions<I, O>): Processor {
    return openProcessor(this.#context, options)
  }

  /**
   * Shuts down every producer and consumer of this client (sends are waited for, consumers store by their policy), then the
   * connection. The second call awaits the first; later calls of anything else are refused with ClosedError.
   * @throws TimeoutError when not all was done in time, and what a shutdown failed with; the connection is closed even so
   */
  async close(options?: CloseOptions): Promise<void> {
    const read = new OptionReader<CloseOptions>("close", options, ["timeoutMs"])
    await this.#context.close(read.duration("timeoutMs", { zero: true, fallback: defaultCloseMs }))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/**
 * A client over a session, which it owns from here on.
 * @throws InvalidError for the options
 */
export function openClient(session: Session, options: ClientOptions, runtime: ClientRuntime): Client {
  const settings = checkClientOptions(options, session.manifest.limits)
  return new Client(new LiveContext(session, settings, runtime), settings.stream)
}
