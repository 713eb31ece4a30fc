/** `bench <suite> [--only id[,id]] [--json FILE] [--markdown] [--quick]`, checked. */
import { parseArgs } from "node:util"

export interface Command {
  readonly suite: string
  /** Ids to run, in the suite's order; all when absent. */
  readonly only: readonly string[] | undefined
  /** The file that gets the JSON array. */
  readonly json: string | undefined
  /** Whether the rows are printed once more as tables of `docs/benchmarks.md`. */
  readonly markdown: boolean
  /** A smoke test: small loads, one round. Its figures mean nothing. */
  readonly quick: boolean
}

const usage: string =
  "usage: npm run bench -- embedded|producer|consumer|kafka|nats|iggy [--only id[,id]] [--json FILE] [--markdown] [--quick]"

/**
 * @param suites the ids of each suite.
 * @throws Error that names the argument and what is allowed.
 */
export function parseCommand(args: readonly string[], suites: Readonly<Record<string, readonly string[]>>): Command {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      only: { type: "string" },
      json: { type: "string" },
      markdown: { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
    },
  })
  const suite = positionals.join(" ")
  const known = Object.hasOwn(suites, suite) ? suites[suite] : undefined
  if (known === undefined) {
    const names = Object.keys(suites).map((name) => JSON.stringify(name))
    throw new Error(`suite ${JSON.stringify(suite)} is unknown: the suites are ${names.join(", ")}\n${usage}`)
  }
  const only = values.only?.split(",").map((id) => id.trim())
  for (const id of only ?? []) {
    if (!known.includes(id))
      throw new Error(`benchmark ${JSON.stringify(id)} is unknown: the ids are ${known.join(", ")}`)
  }
  return { suite, only, json: values.json, markdown: values.markdown, quick: values.quick }
}
