/** The loads of the producer suite, the same in each of its benchmarks. */
import { payloads } from "../payload.ts"

export const recordBytes = 100

/** Different payloads, used again and again. */
export const records: readonly Uint8Array[] = payloads(1000, recordBytes)

/** Sends that are not awaited one by one: the group is. */
export const groupRecords = 10_000

/** One payload after the other, from the first again behind the last. */
export function payloadAt(index: number): Uint8Array {
  return records[index % records.length] as Uint8Array
}

/**
 * Calls `send` for `count` records and waits for the last of every `groupRecords`: sends are accepted in the order of the calls, so that
 * with the last one all are.
 * @throws what the last send of a group fails with; an earlier one that fails ends the process, since nobody listens to it
 */
export async function acceptInGroups(count: number, send: (index: number) => Promise<unknown>): Promise<void> {
  for (let sent = 0; sent < count; ) {
    let last: Promise<unknown> | undefined
    for (const end = Math.min(count, sent + groupRecords); sent < end; sent++) last = send(sent)
    await last
  }
}

/**
 * Calls `send` for `count` records and waits for all of every `groupRecords` before the next.
 * @throws what a send fails with
 */
export async function confirmInGroups(count: number, send: (index: number) => Promise<unknown>): Promise<void> {
  const group: Promise<unknown>[] = []
  for (let sent = 0; sent < count; ) {
    group.length = 0
    for (const end = Math.min(count, sent + groupRecords); sent < end; sent++) group.push(send(sent))
    await Promise.all(group)
  }
}

/** Calls `send` for `count` records and awaits each. */
export async function sendOneByOne(count: number, send: (index: number) => Promise<unknown>): Promise<void> {
  for (let index = 0; index < count; index++) await send(index)
}
