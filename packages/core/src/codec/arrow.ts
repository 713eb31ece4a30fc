import { DecodeError, InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { type ArrowBatch, describeArrowIpc } from "./arrow-ipc.ts"
import type { Codec } from "./codec.ts"
import { encodeFailure } from "./failure.ts"
import { loadLibrary } from "./library.ts"
import { plainView } from "./utf8.ts"

/** A table of `apache-arrow`, as far as every one is. The codec gives and takes the library's own: `arrow<Table>()`. */
export interface ArrowTable {
  readonly numRows: number
  readonly numCols: number
  readonly schema: { readonly fields: readonly { readonly name: string }[] }
  toArray(): unknown[]
}

interface ArrowLibrary {
  readonly Table: abstract new (...parameters: never[]) => ArrowTable
  tableFromIPC(bytes: Uint8Array): ArrowTable
  tableToIPC(table: ArrowTable, format: "stream"): Uint8Array
}

/**
 * Tables as Arrow IPC streams. Needs the package `apache-arrow`. What is read may be a stream or a file, and its framing is followed
 * to the end before it is decoded. Records have the fingerprint of their schema in their metadata (table 1.11 of the options).
 */
export class Arrow<T extends ArrowTable = ArrowTable> implements Codec<T> {
  readonly name: string = "Arrow"
  readonly contentType: "arrow" = "arrow"
  readonly #library: ArrowLibrary

  /** @throws UnsupportedError without `apache-arrow` */
  constructor() {
    this.#library = loadLibrary<ArrowLibrary>("apache-arrow", "Arrow")
  }

  /** @throws InvalidError for what is no table of `apache-arrow` */
  encode(value: T): Uint8Array {
    // By the prototype: an instanceof is answered by a mark that all copies of the library share.
    if (!isPrototypeOf.call(this.#library.Table.prototype, value)) {
      // The library would write bytes that nobody can read: it tells types apart by their classes.
      const other = typeof (value as Partial<ArrowTable> | null)?.numRows === "number"
      const what = other ? "a table of another copy of it" : shown(value)
      throw new InvalidError(`Arrow takes a Table of the apache-arrow that it has loaded by import, not ${what}`)
    }
    try {
      return plainView(this.#library.tableToIPC(value, "stream"))
    } catch (cause) {
      throw encodeFailure("Arrow", value, cause)
    }
  }

  /** @throws InvalidError for bytes that are not one whole stream or file, DecodeError or an error of `apache-arrow` for what is in them */
  decode(payload: Uint8Array): T {
    const { rows } = describeArrowIpc(payload, checkLongest)
    // A copy: columns are views of what they are read from, and Arrow wants them on even addresses.
    const table = this.#library.tableFromIPC(new Uint8Array(payload)) as T
    if (BigInt(table.numRows) !== rows)
      throw new DecodeError(`its batches say ${rows} rows, and ${table.numRows} were read`)
    return table
  }

  /** The fingerprint of the schema, which every record with Arrow content has. */
  describe(payload: Uint8Array): { readonly schemaFingerprint: Uint8Array } {
    return { schemaFingerprint: describeArrowIpc(payload).schemaFingerprint }
  }
}

/** `new Arrow<T>()`, with `Table` of `apache-arrow` for `T`. */
export function arrow<T extends ArrowTable = ArrowTable>(): Arrow<T> {
  return new Arrow<T>()
}

const { isPrototypeOf } = Object.prototype

/** Values of an array that may have no byte of their own, as nulls and empty lists. */
const mostEmptyValues = 1_000_000n

/** A value has a bit at least. The library makes room for as many values as a batch says. */
function checkLongest({ at, bodyBytes, isCompressed, longest }: ArrowBatch): void {
  if (isCompressed) throw new DecodeError(`the batch at byte ${at} is compressed, which apache-arrow does not read`)
  if (longest <= mostEmptyValues || longest <= 8n * BigInt(bodyBytes)) return
  throw new DecodeError(`the batch at byte ${at} has ${longest} values in ${bodyBytes} bytes`)
}
