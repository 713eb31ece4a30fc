import { createInbox, type Msg } from "@nats-io/transport-node"
import type { Connection } from "./connection.ts"

/** Takes the answers to one ingest. */
export interface IngestListener {
  /** @param sequence The running number of the message that is answered, out of the subject. */
  answered(message: Msg, sequence: number): void
}

/** The answers to all ingests of a connection, over one subscription: `<inbox>.<id>.<flow>.<gaps>.<sequence>.<operation>.$FI`. */
export class IngestAnswers {
  readonly #inbox = createInbox()
  readonly #listeners = new Map<string, IngestListener>()
  #last = 0

  constructor(connection: Connection) {
    connection.nc.subscribe(`${this.#inbox}.>`, { callback: (error, message) => this.#receive(error, message) })
  }

  /** A new ingest: its subject, up to its id, and the way to end listening. */
  begin(listener: IngestListener): { readonly answers: string; readonly end: () => void } {
    const id = (++this.#last).toString(36)
    this.#listeners.set(id, listener)
    return { answers: `${this.#inbox}.${id}`, end: () => this.#listeners.delete(id) }
  }

  #receive(error: Error | null, message: Msg): void {
    // A subscription that is refused gets no answers: what is under way fails at its time limit.
    if (error !== null) return
    const [id = "", , , sequence] = message.subject.slice(this.#inbox.length + 1).split(".")
    this.#listeners.get(id)?.answered(message, Number(sequence))
  }
}
