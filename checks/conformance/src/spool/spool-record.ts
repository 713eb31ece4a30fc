/** The records of the kill tests: a number, and a key that follows from it. */

const keys = 5

export function keyOf(number: number): string {
  return `key ${number % keys}`
}

export function payloadOf(number: number): Uint8Array {
  return new TextEncoder().encode(`${number} ${"x".repeat(number % 90)}`)
}

export function numberOf(payload: Uint8Array | null): number {
  return Number(new TextDecoder().decode(payload ?? new Uint8Array()).split(" ")[0])
}

/** What is wrong with what was found, in words. @param found Numbers in the order of each partition. */
export function checkSpooled(
  accepted: readonly (readonly [from: number, to: number])[],
  found: readonly (readonly number[])[],
  { once }: { readonly once: boolean },
): string[] {
  const wrong: string[] = []
  const times = new Map<number, number>()
  for (const number of found.flat()) times.set(number, (times.get(number) ?? 0) + 1)
  for (const [from, to] of accepted) {
    for (let number = from; number < to; number++)
      if (!times.has(number)) wrong.push(`${number} was accepted and is lost`)
  }
  if (once) for (const [number, count] of times) if (count > 1) wrong.push(`${number} is there ${count} times`)
  for (const partition of found) {
    const last = new Map<string, number>()
    const seen = new Set<number>()
    for (const number of partition) {
      if (seen.has(number)) continue
      seen.add(number)
      const key = keyOf(number)
      if (number < (last.get(key) ?? -1)) wrong.push(`${number} stands behind ${last.get(key)} of the same key`)
      last.set(key, number)
    }
  }
  return wrong
}
