import type { Codec } from "../wire/codec.ts"
import type { WireVersion } from "../wire/version.ts"
import type { PartitionRef } from "./message-structures.ts"

/** One command of the protocol. `Q` is what is asked, `S` what is answered (docs/drivers/iggy-wire.md: Commands, Wire 0.12). */
export interface Command<Q, S> {
  /** For error messages. */
  readonly name: string
  readonly code: number
  /** The operation byte of the request's header. */
  readonly operation: number
  readonly request: Codec<Q>
  /** Of the payload: what follows the list of results, where there is one. */
  readonly reply: Codec<S>
  /** The partition that a request speaks to, where it speaks to one: wire 0.12 wants its life named. */
  place?(query: Q): PartitionRef | undefined
  /** The wire that alone has it. Absent: all have it. */
  readonly only?: WireVersion
}
