/**
 * The main job: `npm start`. 20,000 flights go through a topic of four partitions, two worker processes compute the delays by airport,
 * and two processors enter each flight into a ledger, exactly once. One of each is killed in mid-way; every figure must come out right, and
 * flights and entries must be one to one.
 *
 *     npm start                                 in a temporary directory, which is removed
 *     npm start -- --keep ./data                in a directory that stays; a second run goes on where the first one stood
 *     npm start -- --rate 20000                 publishes faster than 5,000 flights a second
 *     npm start -- --session-timeout 10000      the workers ask for another session time-out than 6,000 ms
 *     MILLRACE_URL=kafka://127.0.0.1:9092 npm start             on a server, in a stream that is deleted
 *     MILLRACE_URL=nats://127.0.0.1:4222 npm start -- --keep s  in the stream s, which stays
 *     npm start -- --all                        on every backend that can be started here, side by side
 */
import process from "node:process"
import { parseArgs } from "node:util"
import { runEverywhere } from "./all-backends.ts"
import { isRight, runJob } from "./job.ts"
import type { Place } from "./place.ts"
import { backendPlace, keptPlace, temporaryPlace } from "./place.ts"
import { printResult } from "./report.ts"

const { values } = parseArgs({
  options: {
    all: { type: "boolean", default: false },
    keep: { type: "string" },
    rate: { type: "string", default: "5000" },
    "session-timeout": { type: "string", default: "6000" },
  },
})
const url = process.env.MILLRACE_URL === "" ? undefined : process.env.MILLRACE_URL

const stop = new AbortController()
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => stop.abort(new Error(`stopped by ${signal}`)))
}

try {
  process.exitCode = (await run()) ? 0 : 1
} catch (error) {
  console.error(stop.signal.aborted ? String(stop.signal.reason) : error)
  process.exitCode = 1
}

async function run(): Promise<boolean> {
  const options = {
    perSecond: whole("rate", values.rate),
    sessionTimeoutMs: whole("session-timeout", values["session-timeout"]),
    limitMs: 120_000,
    signal: stop.signal,
  }
  if (values.all) {
    if (values.keep !== undefined || url !== undefined)
      throw new Error("--all goes with neither --keep nor MILLRACE_URL")
    return runEverywhere(options)
  }
  const place = await choosePlace()
  try {
    const result = await runJob({ ...options, place })
    printResult(result, options.sessionTimeoutMs)
    return isRight(result)
  } finally {
    const farewell = await place.leave()
    if (farewell !== undefined) console.log(farewell)
  }
}

async function choosePlace(): Promise<Place> {
  if (url !== undefined) return backendPlace(url, values.keep)
  return values.keep === undefined ? temporaryPlace() : keptPlace(values.keep)
}

function whole(name: string, text: string): number {
  const number = Number(text)
  if (!Number.isSafeInteger(number) || number < 1) throw new Error(`--${name} ${text} is not a whole number from 1`)
  return number
}
