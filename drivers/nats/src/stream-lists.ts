import { MillraceError } from "@millrace/contract"
import type { Connection } from "./connection.ts"
import type { StreamInfo } from "./stream-info.ts"

/** Pages of a list at most: 256 streams or 1,024 names each. */
const mostPages = 1_000

interface Page {
  readonly total?: number
  readonly offset?: number
  readonly limit?: number
}

/** Lists of JetStream streams, page by page. */
export class StreamLists {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  /** Information about all streams, or those that listen to a subject that matches the filter. */
  infos(subject?: string): Promise<StreamInfo[]> {
    return this.#pages<StreamInfo>("STREAM.LIST", subject)
  }

  names(subject?: string): Promise<string[]> {
    return this.#pages<string>("STREAM.NAMES", subject)
  }

  async #pages<T>(name: string, subject: string | undefined): Promise<T[]> {
    const all: T[] = []
    for (let page = 0; page < mostPages; page++) {
      const body = { offset: all.length, ...(subject === undefined ? {} : { subject }) }
      const answer = await this.#connection.api<Page & { readonly streams?: T[] | null; readonly ts?: string }>(
        name,
        body,
        {
          idempotent: true,
        },
      )
      const streams = answer.streams ?? []
      all.push(...streams)
      if (streams.length === 0 || all.length >= (answer.total ?? 0)) return all
    }
    throw new MillraceError("protocol", `NATS lists more than ${mostPages} pages of streams`, { outcome: "rejected" })
  }
}
