/** `bench <suite> [--only id[,id]] [--json FILE] [--quick]`, checked. */
import { parseArgs } from "node:util"

export interface Command {
  /** Ids to run, in the suite's order; all when absent. */
  readonly only: readonly string[] | undefined
  /** The file that gets the JSON array. */
  readonly json: string | undefined
  /** A smoke test: small loads, one round. Its figures mean nothing. */
  readonly quick: boolean
}

const usage: string = "usage: npm run bench -- embedded [--only id[,id]] [--json FILE] [--quick]"

/**
 * @param known the ids of the suite.
 * @throws Error that names the argument and what is allowed.
 */
export function parseCommand(args: readonly string[], known: readonly string[]): Command {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: { only: { type: "string" }, json: { type: "string" }, quick: { type: "boolean", default: false } },
  })
  if (positionals.length !== 1 || positionals[0] !== "embedded") {
    throw new Error(`suite ${JSON.stringify(positionals.join(" "))} is unknown: the suites are "embedded"\n${usage}`)
  }
  const only = values.only?.split(",").map((id) => id.trim())
  for (const id of only ?? []) {
    if (!known.includes(id))
      throw new Error(`benchmark ${JSON.stringify(id)} is unknown: the ids are ${known.join(", ")}`)
  }
  return { only, json: values.json, quick: values.quick }
}
