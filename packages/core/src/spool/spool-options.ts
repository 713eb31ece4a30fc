import { InvalidError } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"

/** Where a background producer keeps accepted records until the backend has them. A bare text is the directory. */
export interface SpoolOptions {
  /** Of this spool alone; it is made where it is missing. One producer of one process uses it at a time. */
  readonly directory: string
  /** Bytes of records that may wait in it; what a send does that finds no room is the producer's `failureMode`. Default 1 GiB. */
  readonly maxSpoolBytes?: number
  /**
   * What becomes of a batch whose outcome is unknown when the backend cannot recognise its resend any more. `resend` (default): it goes
   * out again, and its records may be stored twice; `depth().possiblyDoubled` counts them. `report`: it goes to `onError`, with outcome
   * `unknown`.
   */
  readonly onExpired?: "resend" | "report"
}

/** Spool options after the checks. */
export interface SpoolSettings {
  readonly directory: string
  readonly maxSpoolBytes: number
  readonly onExpired: "resend" | "report"
}

const known: readonly (keyof SpoolOptions)[] = ["directory", "maxSpoolBytes", "onExpired"]

/** @throws InvalidError for unknown keys and values out of range */
export function checkSpoolOptions(owner: string, given: string | SpoolOptions): SpoolSettings {
  const options = typeof given === "string" ? { directory: given } : given
  const what = `spool of the ${owner}`
  const read = new OptionReader<SpoolOptions>(what, options, known)
  const directory: unknown = options.directory
  if (typeof directory !== "string" || directory === "" || directory.includes("\0")) {
    throw new InvalidError(`${what}: option "directory" is ${shown(directory)}; it must be the path of a directory`)
  }
  return {
    directory,
    maxSpoolBytes: read.whole("maxSpoolBytes", { min: 1, max: Number.MAX_SAFE_INTEGER, fallback: 1 << 30 }),
    onExpired: read.choice("onExpired", ["resend", "report"], "resend"),
  }
}
