import { ClosedError } from "@millrace/contract"
import type { Command } from "./codec/command.ts"
import type { Confirmation } from "./codec/message-structures.ts"
import type { IggyConnection, Sendable } from "./connection/connection.ts"
import type { Requests } from "./requests.ts"
import type { WireVersion } from "./wire/version.ts"

/** A connection as the facets use it: every request has the session's time limit. */
export class SessionRequests implements Requests {
  readonly connection: IggyConnection
  readonly #timeoutMs: number
  #closing: Promise<void> | undefined

  constructor(connection: IggyConnection, timeoutMs: number) {
    this.connection = connection
    this.#timeoutMs = timeoutMs
  }

  get version(): WireVersion {
    return this.connection.version
  }

  request<Q, S>(command: Command<Q, S>, query: Q): Promise<S> {
    return this.connection.request(command, query, { timeoutMs: this.#timeoutMs })
  }

  send(batch: Sendable): Promise<readonly Confirmation[]> {
    return this.connection.send(batch, { timeoutMs: this.#timeoutMs })
  }

  assertOpen(): void {
    if (this.#closing !== undefined) throw new ClosedError("the session is closed")
  }

  close(): Promise<void> {
    this.#closing ??= this.connection.close()
    return this.#closing
  }
}
