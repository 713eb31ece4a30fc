import type { Part } from "../command-line.ts"

/** One way to break the core: a text in one of its files that is replaced by another. */
export interface Mutant {
  readonly name: string
  /** Below packages/core/src. */
  readonly file: string
  /** Stands there exactly once: a mutant whose text has drifted fails loudly. */
  readonly find: string
  readonly replace: string
}

/** Which part of a seed has to notice what is broken in a room. */
const partOfRoom: Readonly<Record<string, Part>> = {
  consumer: "consumers",
  partition: "consumers",
  progress: "consumers",
  group: "consumers",
  handler: "consumers",
  queue: "queues",
  transaction: "transactions",
  schema: "schemas",
}

/** Which part of a seed has to notice it. */
export function partOf({ file }: Mutant): Part {
  return partOfRoom[file.slice(0, file.indexOf("/"))] ?? "producers"
}

/** The source with the mutant in it. @throws Error unless the text is there exactly once */
export function mutated(source: string, { name, file, find, replace }: Mutant): string {
  const parts = source.split(find)
  if (parts.length === 2) return parts.join(replace)
  const times = parts.length === 1 ? "not" : `${parts.length - 1} times`
  throw new Error(`mutant "${name}": its text is ${times} in ${file}; it has to be there once:\n${find}`)
}
