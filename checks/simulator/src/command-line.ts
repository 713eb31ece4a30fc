import { parseArgs } from "node:util"

/** What a seed decides: lives of programs that write, that read, that take from work queues, that work in transactions, and that register schemas. */
export type Part = (typeof parts)[number]

export const parts = ["producers", "consumers", "queues", "transactions", "schemas"] as const

/** What the command was asked to do. */
export type Command =
  | { readonly kind: "seeds"; readonly from: number; readonly count: number; readonly only: Part | undefined }
  | { readonly kind: "seed"; readonly seed: number; readonly trace: boolean; readonly only: Part | undefined }
  | { readonly kind: "mutants"; readonly seeds: number; readonly names: readonly string[] }
  | { readonly kind: "help" }

export const usage: string = `npm run simulate -- [options]
  --seeds N          that many seeds (2000 without an option)
  --from N           the first of them (1)
  --forever          seeds without an end, until one fails
  --seed N [--trace] one seed again, with every event it consists of
  --only PART        producers, consumers, queues, transactions or schemas (all without an option)
  --mutants [name …] breaks the core in one way after the other, each until a seed notices (within --seeds N, 1500)`

/** @throws Error for options that are not known, or no numbers */
export function parseCommand(args: readonly string[]): Command {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      seeds: { type: "string" },
      from: { type: "string" },
      forever: { type: "boolean" },
      seed: { type: "string" },
      only: { type: "string" },
      trace: { type: "boolean" },
      mutants: { type: "boolean" },
      help: { type: "boolean" },
    },
  })
  if (values.help) return { kind: "help" }
  if (values.mutants) return { kind: "mutants", seeds: whole("seeds", values.seeds, 1500), names: positionals }
  if (positionals.length > 0) throw new Error(`"${positionals[0]}" is not an option\n${usage}`)
  const only = part(values.only)
  if (values.seed !== undefined)
    return { kind: "seed", seed: whole("seed", values.seed, 0), trace: values.trace ?? false, only }
  const from = whole("from", values.from, 1)
  if (values.forever) return { kind: "seeds", from, count: Number.POSITIVE_INFINITY, only }
  return { kind: "seeds", from, count: whole("seeds", values.seeds, 2000), only }
}

function part(text: string | undefined): Part | undefined {
  if (text === undefined || (parts as readonly string[]).includes(text)) return text as Part | undefined
  throw new Error(`--only ${text} is none of ${parts.join(", ")}\n${usage}`)
}

function whole(option: string, text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback
  const value = Number(text)
  if (Number.isSafeInteger(value) && value >= 0) return value
  throw new Error(`--${option} ${text} is not a whole number from 0\n${usage}`)
}
