/** The simulation itself: many seeds, the same twice, and a core that is broken on purpose. */
import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { readFile } from "node:fs/promises"
import { availableParallelism } from "node:os"
import process from "node:process"
import { test } from "node:test"
import { fileURLToPath } from "node:url"
import { mutated } from "./mutants/mutant.ts"
import { mutants } from "./mutants/mutants.ts"
import { catchMutant } from "./mutants/run-mutants.ts"

const isLong = process.env.MILLRACE_LONG === "1"

/** Of `npm test`, by parts; `npm run simulate` runs any number. */
const seedsOf = {
  producers: isLong ? 20_000 : 2000,
  consumers: isLong ? 10_000 : 800,
  queues: isLong ? 10_000 : 300,
  transactions: isLong ? 10_000 : 200,
  schemas: isLong ? 5000 : 200,
} as const

/** The command, in a process of its own: what it sees of rejections and throws is not the test runner's. */
function simulate(args: readonly string[]): Promise<{ readonly code: number | null; readonly output: string }> {
  const extension = import.meta.url.endsWith(".ts") ? "ts" : "js"
  const main = fileURLToPath(new URL(`./main.${extension}`, import.meta.url))
  const child = spawn(process.execPath, [main, ...args], { stdio: ["ignore", "pipe", "inherit"] })
  let output = ""
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text
  })
  return new Promise((resolve, reject) => {
    child.once("error", reject)
    child.once("close", (code) => resolve({ code, output }))
  })
}

for (const [part, seeds] of Object.entries(seedsOf)) {
  test(`every promise to ${part} holds in ${seeds} seeds`, async () => {
    const shares = Math.min(2, availableParallelism())
    const each = Math.ceil(seeds / shares)
    const runs = Array.from({ length: shares }, (_, share) =>
      simulate(["--only", part, "--from", String(1 + share * each), "--seeds", String(each)]),
    )
    for (const { code, output } of await Promise.all(runs)) assert.equal(code, 0, output)
  })
}

test("a seed replays the same, byte for byte", async () => {
  for (const seed of ["11", "216", "1237"]) {
    const [once, again] = await Promise.all([1, 2].map(() => simulate(["--seed", seed, "--trace"])))
    assert.ok((once?.output.length ?? 0) > 1000)
    assert.equal(once?.output, again?.output)
  }
})

test("a core that is broken on purpose is noticed", async () => {
  const chosen = [
    "swap two batches on a resend",
    "drop the failures that nobody takes",
    "commit a message before it is handled",
    "start an assigned partition at 0",
    "ack a message whose handler has failed",
    "bury without a dead letter",
    "commit what is still on its way",
    "pass poison without its dead letter",
    "write the versions over those of somebody else",
  ]
  const found = await Promise.all(
    mutants.filter(({ name }) => chosen.includes(name)).map((mutant) => catchMutant(mutant, 100)),
  )
  assert.deepEqual(
    found.map((caught) => caught?.invariant),
    [
      "order within a partition",
      "nothing accepted is lost",
      "a commit never passes an unhandled message",
      "reading starts where progress is stored",
      "nothing is acked before it is handled",
      "buried with its dead letter",
      "one output for each input",
      "one output for each input",
      "versions stay",
    ],
  )
})

test("every mutant fits the core", async () => {
  const core = new URL("../../../packages/core/src/", import.meta.url)
  for (const mutant of mutants) mutated(await readFile(new URL(mutant.file, core), "utf8"), mutant)
})

test("a mutant whose text is not there exactly once fails loudly", () => {
  const mutant = { name: "m", file: "f.ts", find: "a()", replace: "b()" }
  assert.equal(mutated("x; a(); y", mutant), "x; b(); y")
  assert.throws(() => mutated("x", mutant), /not in f\.ts/)
  assert.throws(() => mutated("a(); a()", mutant), /2 times in f\.ts/)
})
