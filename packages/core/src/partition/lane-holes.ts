import type { MessageSource } from "../record/message.ts"
import type { Lane } from "./lane.ts"

/** Offsets that no message has are handled: before the run of records, inside it, and behind it. */
export function passHoles(
  lane: Lane,
  batch: MessageSource["batch"],
  run: { readonly from: number; readonly to: number; readonly next: bigint },
): void {
  const { ranges } = lane
  const first = batch.offset(run.from)
  const last = batch.offset(run.to - 1)
  const expected = lane.handedNext ?? ranges.prefix
  if (first > expected) ranges.add(expected, first)
  if (last - first !== BigInt(run.to - run.from - 1)) {
    for (let index = run.from + 1, next = first + 1n; index < run.to; index++) {
      const offset = batch.offset(index)
      if (offset > next) ranges.add(next, offset)
      next = offset + 1n
    }
  }
  if (run.next > last + 1n) ranges.add(last + 1n, run.next)
}
