/**
 * What writers put into records so that a reader can tell loss, repetition and disorder: the lane (one sequence of sends whose order
 * is promised) and a counter that starts at 0 and has no gaps.
 *
 *     <lane>:<counter>:<padding>
 */

/** One record's place in its lane. */
export interface LanePlace {
  /** `<writer>.<kind>`: unique for each life of a writer. Lanes whose kind begins with `x` promise an order in each partition only. */
  readonly lane: string
  readonly counter: number
}

const utf8 = new TextEncoder()
const strict = new TextDecoder("utf-8", { fatal: true })

/** A payload that tells its place, padded to a length that varies with the counter so that batches have all sizes. */
export function lanePayload(lane: string, counter: number): Uint8Array {
  return utf8.encode(`${lane}:${counter}:${"p".repeat((counter * 37) % 400)}`)
}

/** @throws Error when the payload is none of ours: a record that nobody sent. */
export function readLane(payload: Uint8Array | null): LanePlace {
  const text = payload === null ? "" : strict.decode(payload)
  const match = /^([^:]+):(\d+):(p*)$/.exec(text)
  const counter = Number(match?.[2])
  if (match === null || match[1] === undefined || match[3]?.length !== (counter * 37) % 400) {
    throw new Error(`a record that nobody sent: ${JSON.stringify(text.slice(0, 80))}`)
  }
  return { lane: match[1], counter }
}

/** Whether the lane promises one order over all of its records, or only in each partition. */
export function isOrdered(lane: string): boolean {
  return !lane.includes(".x")
}
