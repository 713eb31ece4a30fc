/**
 * The main job: `npm start`. 20,000 flights go through a topic of four partitions, two worker processes compute the delays by airport,
 * one of them is killed in mid-way, and every figure must come out right.
 *
 *     npm start                       in a temporary directory, which is removed
 *     npm start -- --keep ./data      in a directory that stays; a second run goes on where the first one stood
 *     npm start -- --rate 20000       publishes faster than 5,000 flights a second
 */
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { parseArgs } from "node:util"
import { runJob } from "./job.ts"

const { values } = parseArgs({ options: { keep: { type: "string" }, rate: { type: "string", default: "5000" } } })
const perSecond = Number(values.rate)
if (!Number.isSafeInteger(perSecond) || perSecond < 1) {
  console.error(`--rate ${values.rate} is not a whole number of flights a second from 1`)
  process.exit(1)
}

// Npm runs scripts in the root of the repository; the directory is meant from where the user stands.
const kept = values.keep === undefined ? undefined : resolve(process.env.INIT_CWD ?? ".", values.keep)
const directory = kept ?? (await mkdtemp(join(tmpdir(), "millrace-flights-")))

try {
  const right = await runJob({ directory, perSecond, limitMs: 120_000 })
  process.exitCode = right ? 0 : 1
} catch (error) {
  console.error(error)
  process.exitCode = 1
} finally {
  if (kept === undefined) await rm(directory, { recursive: true, force: true })
  else console.log(`The data stays in ${directory}.`)
}
