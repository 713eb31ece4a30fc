/** What becomes of an input, by its number: the same whoever handles it. */
import type { OutputRule } from "./transaction-desk.ts"

export const inputTopic: string = "in"
export const outputTopic: string = "out"
/** Where `process` puts what its handlers fail with. */
export const deadTopic: string = "dead"

/** The groups that inputs are read by: by hand, and by `process`. */
export const relayGroup: string = "relays"
export const processGroup: string = "processors"

export const relayRules: readonly OutputRule[] = [{ topic: outputTopic, outputs: () => 1 }]

/** Every so many inputs no handler succeeds with, and every so many have no output, or two. */
export function isPoison(number: number): boolean {
  return number % 13 === 5
}

export function outputsOf(number: number): number {
  if (isPoison(number) || number % 7 === 3) return 0
  return number % 7 === 4 ? 2 : 1
}

export const processRules: readonly OutputRule[] = [
  { topic: outputTopic, outputs: outputsOf },
  { topic: deadTopic, outputs: (number) => (isPoison(number) ? 1 : 0) },
]
