/**
 * Runs the tests: `npm test`, `npm test -- producer trials/` (files whose path contains one of these), `npm run test:long` (`--long`:
 * the long sweeps), `npm run test:node22` (`--compiled`: what tsc wrote to dist). Files that measure time run one after the other, when
 * everything else is done. Servers that files share are started when the first file asks for them. Prints failures, and at the end
 * what was skipped and why; a skip that `MILLRACE_REQUIRE` rules out is a failure.
 */
import { existsSync, readFileSync } from "node:fs"
import { availableParallelism } from "node:os"
import { resolve } from "node:path"
import process from "node:process"
import { run } from "node:test"
import { parseArgs } from "node:util"
import { fetchServers, ServerHost } from "@millrace/servers"
import { listFiles } from "./source-files.ts"
import { longestFirst } from "./test-run/order.ts"
import { Tally } from "./test-run/tally.ts"

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { long: { type: "boolean" }, compiled: { type: "boolean" }, verbose: { type: "boolean" } },
})

const areas = values.compiled
  ? ["packages", "drivers", "checks"]
  : ["packages", "drivers", "checks", "tools", "examples"]
const isTest = values.compiled ? /\/dist\/.*\.test\.js$/ : /\.test\.ts$/
const measuresTime = /\/trials\/(?!queue-|transacting-)|\/bench\//
/** One more than there are processors: the longest files wait for servers most of their time. */
const filesAtOnce = Math.min(4, availableParallelism() + 1)
/** A run in which nothing happens for so long is stuck: a test process that has finished its tests but does not end is one reason. */
const silenceMs = values.long ? 3_600_000 : 180_000

// Tests start many processes; what one has compiled the next need not.
process.env.NODE_COMPILE_CACHE ??= resolve("node_modules/.cache/millrace-tests")
process.env.NODE_OPTIONS = values.compiled ? "" : "--conditions=millrace-source"
if (values.long) process.env.MILLRACE_LONG = "1"

const files = areas
  .flatMap((area) => listFiles(area, (path) => isTest.test(path), { dist: values.compiled ?? false }))
  .filter((path) => !values.compiled || hasSource(path))
  .filter((path) => positionals.length === 0 || positionals.some((part) => path.includes(part)))

const required = (process.env.MILLRACE_REQUIRE ?? "").split(",").filter((name) => name !== "")
const tally = new Tally({ required, verbose: values.verbose ?? false, write: (text) => process.stdout.write(text) })
for (const failure of await fetchServers((["kafka", "nats"] as const).filter(isNeeded))) console.error(failure)
{
  await using host = await ServerHost.open()
  Object.assign(process.env, host.environment)
  await runFiles(longestFirst(files.filter((path) => !measuresTime.test(path))), filesAtOnce)
  await runFiles(
    files.filter((path) => measuresTime.test(path)),
    1,
  )
}
process.exitCode = tally.finish() ? 0 : 1

/** What was compiled before its source was renamed or removed stays in dist. */
function hasSource(compiled: string): boolean {
  return existsSync(compiled.replace("/dist/", "/src/").replace(/\.js$/, ".ts"))
}

/** Whether a test file speaks of a server: a first run fetches it, before tests have to wait for that. */
function isNeeded(kind: string): boolean {
  return files.some((path) => !path.startsWith("packages/") && readFileSync(path, "utf8").includes(kind))
}

async function runFiles(list: readonly string[], concurrency: number): Promise<void> {
  if (list.length === 0) return
  const stuck = new AbortController()
  const watchdog = setTimeout(() => {
    tally.giveUp(`nothing happened for ${silenceMs / 1_000} s`)
    stuck.abort()
  }, silenceMs)
  for await (const event of run({ files: [...list], concurrency, timeout: silenceMs, signal: stuck.signal })) {
    watchdog.refresh()
    tally.take(event)
  }
  clearTimeout(watchdog)
}
