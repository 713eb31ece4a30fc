/**
 * The consumer on the server that a lane reads through: without a name of its own for users, in memory, without acknowledgements. It is
 * as short-lived as the connection; the place in the log is the reader's, not the server's.
 */
import { createInbox, type Msg, type Subscription } from "@nats-io/transport-node"
import type { Connection } from "./connection.ts"

/** The server forgets a consumer that nobody pulled from for so long, in ns: longer than a slow handler, shorter than it would matter. */
const inactiveThresholdNs = 300e9
const nsPerMs = 1e6

/** How long one pull may stay open at the server, in ms. */
const pullExpiresMs = 30_000
/** How often the server gives a sign of life while a pull waits, in ms. */
export const heartbeatMs: number = 5_000

export interface PullRequest {
  readonly messages: number
  /** Absent: any. */
  readonly bytes: number | undefined
}

/** How far a consumer has come. */
export interface ConsumerStanding {
  /** Messages that it has yet to deliver. */
  readonly pending: number
  /** Messages that it has delivered since it was made; some may be on their way. */
  readonly sent: number
}

/** Who is told what comes. */
export interface ConsumerEars {
  readonly receive: (message: Msg) => void
  /** The subscription ended: this user may not receive answers. */
  readonly refused: (error: Error) => void
}

/** One ephemeral pull consumer and the subscription that its messages come to. */
export class ReaderConsumer {
  readonly streamName: string
  readonly name: string
  readonly #connection: Connection
  readonly #inbox: string
  readonly #subscription: Subscription

  private constructor(connection: Connection, streamName: string, { receive, refused }: ConsumerEars) {
    this.#connection = connection
    this.streamName = streamName
    this.name = `millrace-${hex(connection)}${hex(connection)}`
    this.#inbox = createInbox()
    this.#subscription = connection.nc.subscribe(this.#inbox, {
      callback: (error, message) => {
        if (error === null) receive(message)
        else refused(error)
      },
    })
  }

  /**
   * Creates a consumer that begins at the sequence, or behind it where that is a hole. Answers it, with the number of messages that it
   * has to deliver.
   * @throws NotFoundError when the stream is gone, and what `Connection.api` throws
   */
  static async create(
    connection: Connection,
    streamName: string,
    options: ConsumerEars & { readonly sequence: number },
  ): Promise<{ readonly consumer: ReaderConsumer; readonly pending: number }> {
    const consumer = new ReaderConsumer(connection, streamName, options)
    try {
      const info = await connection.api<ConsumerInfo>(`CONSUMER.CREATE.${streamName}.${consumer.name}`, {
        stream_name: streamName,
        action: "create",
        config: {
          name: consumer.name,
          deliver_policy: "by_start_sequence",
          opt_start_seq: options.sequence,
          ack_policy: "none",
          replay_policy: "instant",
          inactive_threshold: inactiveThresholdNs,
          num_replicas: 1,
          mem_storage: true,
        },
      })
      return { consumer, pending: info.num_pending }
    } catch (error) {
      consumer.remove()
      throw error
    }
  }

  /** Asks for messages. They, or a status that says why not, come to `receive`. */
  pull({ messages, bytes }: PullRequest): void {
    const limit = bytes === undefined ? "" : `,"max_bytes":${bytes}`
    this.#send(
      `CONSUMER.MSG.NEXT.${this.streamName}.${this.name}`,
      `{"batch":${messages},"expires":${pullExpiresMs * nsPerMs},"idle_heartbeat":${heartbeatMs * nsPerMs}${limit}}`,
      this.#inbox,
    )
  }

  /** How far it has come, as its own server knows. @throws NotFoundError and what `Connection.api` throws */
  async standing(): Promise<ConsumerStanding> {
    const path = `CONSUMER.INFO.${this.streamName}.${this.name}`
    const info = await this.#connection.api<ConsumerInfo>(path, undefined, { idempotent: true })
    return { pending: info.num_pending, sent: info.delivered?.consumer_seq ?? 0 }
  }

  /**
   * Receives nothing more, and tells the server to forget it, now or when it is there again. Nobody waits for the answer: a consumer
   * that the server does not hear of ends by its inactivity.
   */
  remove(): void {
    const connection = this.#connection
    if (!connection.nc.isClosed()) this.#subscription.unsubscribe()
    const forget = (): void => this.#send(`CONSUMER.DELETE.${this.streamName}.${this.name}`, "", "")
    if (connection.connected) {
      forget()
      return
    }
    if (connection.closed) return
    const unlisten = connection.listen({
      restored: () => {
        unlisten()
        forget()
      },
    })
  }

  #send(path: string, body: string, reply: string): void {
    this.#connection.wire.publish(`$JS.API.${path}`, reply, { payload: Buffer.from(body, "latin1") })
  }
}

interface ConsumerInfo {
  readonly num_pending: number
  readonly delivered?: { readonly consumer_seq?: number }
}

function hex({ random }: Connection): string {
  return random.uint32().toString(16).padStart(8, "0")
}
