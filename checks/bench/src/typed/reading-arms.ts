/** Arms that decode every record of a log, and one that decodes the same bytes without a log. */
import type { Cursor, CursorResult } from "millrace"
import type { Arm } from "../pairs.ts"
import { perSecond, timed } from "../stopwatch.ts"
import type { Flight } from "./values.ts"

/** An arm that reads all `count` records; it fails when there are not so many, or they do not add up to what the flights do. */
export function decodingArm(
  name: string,
  of: { readonly count: number; readonly sum: number },
  read: () => Promise<{ readonly count: number; readonly sum: number }>,
): Arm {
  return {
    name,
    async measure() {
      let seen = { count: 0, sum: 0 }
      const { ms, cpuMicros } = await timed(async () => {
        seen = await read()
      })
      if (seen.count !== of.count || seen.sum !== of.sum) {
        throw new Error(`${name}: ${seen.count} records with ${seen.sum}, not ${of.count} with ${of.sum}`)
      }
      return { value: perSecond(of.count, ms), cpuMicrosPerRecord: cpuMicros / of.count }
    },
  }
}

/** Poll by poll to the end of the log. */
export async function pollAll(cursor: Cursor<Flight>): Promise<{ count: number; sum: number }> {
  let [count, sum] = [0, 0]
  for (;;) {
    const results: readonly CursorResult<Flight>[] = await cursor.poll()
    if (results.length === 0) return { count, sum }
    for (const result of results) {
      if (result.kind !== "record") throw new Error(`a result is ${result.kind}`)
      sum += result.value.delay
    }
    count += results.length
  }
}

/** The bare decoder over the same bytes in memory, as often as the log has them. */
export function decodeAll(
  payloads: readonly Uint8Array[],
  count: number,
  decode: (payload: Uint8Array) => unknown,
): { count: number; sum: number } {
  let sum = 0
  for (let index = 0; index < count; index++) {
    sum += (decode(payloads[index % payloads.length] as Uint8Array) as Flight).delay
  }
  return { count, sum }
}
