import { Headers } from "@millrace/contract"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { routesItself } from "./routing.ts"

/** The one record that writers are handed, filled anew each time. */
export class ScratchRecord {
  payload: Uint8Array | null = null
  key: Uint8Array | null = null
  headers: Headers = Headers.empty
  id: bigint | undefined = undefined
  timestampMicros: bigint | undefined = undefined

  /** @param defaultKey The key of records that have no place of their own. */
  fill(record: SendableRecord, defaultKey: Uint8Array | null): this {
    if (record instanceof Uint8Array) {
      this.payload = record
      this.key = defaultKey
      this.headers = Headers.empty
      this.id = undefined
      this.timestampMicros = undefined
    } else {
      this.payload = record.payload
      this.key = routesItself(record) ? record.key : defaultKey
      this.headers = record.headers
      this.id = record.id
      this.timestampMicros = record.timestampMicros
    }
    return this
  }

  /** Keeps no user's bytes alive. */
  clear(): void {
    this.payload = null
    this.key = null
    this.headers = Headers.empty
  }
}
