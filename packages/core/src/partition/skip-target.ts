import { InvalidError, type MillraceError } from "@millrace/contract"
import { topicText } from "../client/names.ts"
import type { Lane } from "./lane.ts"

/** What `seek(partition, "skip")` goes past. `next` is the offset behind it. */
export type SkipTarget =
  /** One record that was read and does not decrypt or decode: reading is beyond it already. */
  | { readonly kind: "record"; readonly offset: bigint; readonly next: bigint }
  /** The same, after reading went back to it because a run ended there: it would come again. */
  | { readonly kind: "next record"; readonly offset: bigint; readonly next: bigint }
  /** Everything before `next`, which the reader cannot get past by itself. */
  | { readonly kind: "position"; readonly next: bigint }

/**
 * What the partition's last error speaks of. Where the driver does not know how long the damage is (`context.nextOffset`), it is one
 * record: the next read tells whether there is more of it.
 * @throws InvalidError when the last thing handed out of the partition was no error, or one that is not of a record.
 */
export function skipTarget(lane: Lane): SkipTarget {
  const { told, partition, failure } = lane
  const where = `partition ${partition.partition} of topic "${topicText(partition)}"`
  if (told === undefined) {
    throw new InvalidError(
      `${where}: there is nothing to skip: no error of this partition was handed out since it is read`,
    )
  }
  if (!isOfRecord(told)) {
    throw new InvalidError(
      `${where}: there is nothing to skip: its last error is not of a record that cannot be read, but of kind "${told.kind}"`,
      { cause: told },
    )
  }
  if (lane.machine.starting) {
    throw new InvalidError(
      `${where}: there is nothing to skip: where reading begins is not known, because its last error stands in the way; give consumer.seek a place that can be looked up`,
      { cause: told },
    )
  }
  const { offset, nextOffset } = told.context
  if (failure === undefined || !isSame(failure.error, told)) {
    if (offset === undefined) throw gone(where, told)
    const next = offset + 1n
    if (lane.handedOffset === offset) return { kind: "record", offset, next }
    if (lane.handedNext === undefined && lane.ranges.prefix === offset) return { kind: "next record", offset, next }
    throw gone(where, told)
  }
  if (lane.machine.offset > failure.offset) throw gone(where, told)
  const known = typeof nextOffset === "bigint" ? nextOffset : (offset ?? failure.offset) + 1n
  return { kind: "position", next: known > failure.offset ? known : failure.offset + 1n }
}

/**
 * Whether the error is of bytes in the log, so that what lies behind them can be read all the same. One with a reason is of a filter that
 * cannot be applied at all.
 */
function isOfRecord({ kind, context }: MillraceError): boolean {
  return (kind === "decode" || kind === "corruption" || kind === "unsupported") && context.reason === undefined
}

/** The reader has met it again since: drivers make another error each time. */
function isSame(one: MillraceError, other: MillraceError): boolean {
  return one.kind === other.kind && one.context.offset === other.context.offset && one.message === other.message
}

function gone(where: string, told: MillraceError): InvalidError {
  return new InvalidError(`${where}: there is nothing to skip: reading has gone on since its last error`, {
    cause: told,
  })
}
