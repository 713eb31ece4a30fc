import { InvalidError } from "@millrace/contract"
import { OptionReader } from "../client/options.ts"
import { type ArrowDescription, describeArrowIpc } from "./arrow-ipc.ts"

/** What the sender of Arrow IPC bytes says about them. Whatever is given must be so. */
export interface ArrowExpectation {
  /** 32 bytes, as `describeArrowIpc` computes them. */
  readonly schemaFingerprint?: Uint8Array
  readonly encodedBytes?: number
  readonly fields?: number
  readonly recordBatches?: number
  readonly rows?: bigint
  readonly dictionaries?: number
}

type Count = Exclude<keyof ArrowExpectation, "schemaFingerprint">

const countNames: Readonly<Record<Count, string>> = {
  encodedBytes: "bytes",
  fields: "fields",
  recordBatches: "record batches",
  rows: "rows",
  dictionaries: "dictionaries",
}
const counts = Object.keys(countNames) as Count[]

/**
 * Describes Arrow IPC bytes and compares them with what is said about them.
 * @throws InvalidError for bytes that are not whole, and where the two differ: it names both
 */
export function checkArrowIpc(bytes: Uint8Array, expected: ArrowExpectation = {}): ArrowDescription {
  new OptionReader<ArrowExpectation>("Arrow IPC", expected, ["schemaFingerprint", ...counts])
  const description = describeArrowIpc(bytes)
  const { schemaFingerprint } = expected
  if (schemaFingerprint !== undefined) {
    const [given, actual] = [hex(schemaFingerprint), hex(description.schemaFingerprint)]
    if (given !== actual)
      throw new InvalidError(`the Arrow schema has the fingerprint ${actual}, not ${given} as was given`)
  }
  for (const count of counts) {
    const given = expected[count]
    if (given !== undefined && given !== description[count]) {
      throw new InvalidError(`the Arrow data has ${description[count]} ${countNames[count]}, not ${given} as was given`)
    }
  }
  return description
}

function hex(bytes: unknown): string {
  if (!(bytes instanceof Uint8Array)) throw new InvalidError(`a schema fingerprint is a Uint8Array of 32 bytes`)
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")
}
