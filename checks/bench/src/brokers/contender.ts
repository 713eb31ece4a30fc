/** Clients that are measured side by side on one server, behind one shape. */

/** A client library. */
export interface Contender {
  readonly name: string
  /** Connects, and makes a topic of one partition of this name, with the library's own means. */
  open(url: string, topic: string): Promise<Contestant>
}

/** One open client with a topic of its own. Parts that it does not have are absent. */
export interface Contestant {
  /** Sends `batches` times the same records, with as many calls outstanding as the library is measured with, and waits for all. */
  produce?(records: readonly Uint8Array[], batches: number): Promise<void>
  /** Sends one record and waits for its confirmation. */
  send?(record: Uint8Array): Promise<void>
  /** Reads `count` records from the first on, looks at each payload, and answers the bytes of all. */
  consume?(count: number): Promise<number>
  close(): Promise<void>
}

/** Calls of `produce` that are outstanding at any time, with every contender that lets the caller choose. */
export const outstandingCalls = 5
