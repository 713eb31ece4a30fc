/** What a spool says when it ends with records in it, or takes no more. */
import { BufferFullError, type MillraceError, TimeoutError } from "@millrace/contract"

/** Whose spool it is. */
export interface SpoolOwner {
  /** As errors call the producer: `producer of topic "s/t"`. */
  readonly owner: string
  readonly directory: string
}

/** A shutdown that leaves records in the spool. @param records How many. */
export function leftBehind(
  records: number,
  { owner, directory, cause }: SpoolOwner & { readonly cause: MillraceError | undefined },
): TimeoutError {
  const what = records === 1 ? "1 record stays" : `${records} records stay`
  return new TimeoutError(
    `${owner}: ${what} in the spool "${directory}": ` +
      "nothing is lost, and what stays goes out when a producer opens the spool again",
    { outcome: "unknown", context: { spooledRecords: records, directory }, ...(cause === undefined ? {} : { cause }) },
  )
}

/** A shutdown whose deadline came before the spool was open: how much is in it, nobody knows. */
export function stillOpening({
  owner,
  directory,
  cause,
}: SpoolOwner & { readonly cause: MillraceError }): TimeoutError {
  return new TimeoutError(
    `${owner}: the spool "${directory}" was still being opened at the deadline of the shutdown: what is in it stays`,
    { outcome: "unknown", context: { directory }, cause },
  )
}

/** A send while so many bytes of refused records wait for somebody to take them. */
export function tooManyRefused(
  bytes: number,
  { owner, directory, limitBytes }: SpoolOwner & { readonly limitBytes: number },
): BufferFullError {
  return new BufferFullError(
    `the spool "${directory}" of the ${owner}: refused records of ${bytes} bytes are kept aside; above maxSpoolBytes (${limitBytes}) ` +
      "no more are accepted: send them anew with spool.resendRefused(), or take them in onError",
    { context: { limitBytes } },
  )
}
