/**
 * Kills writers and readers at instants that a seed decides, over and over on one store, and checks after each kill that everything
 * confirmed is there once and in order, and that nothing is committed that was not handled.
 */

import type { Random } from "@millrace/runtime"
import { type Client, connect, type Topic } from "millrace"
import { CrashChild } from "./child.ts"
import { prepareChildren } from "./child-programs.ts"
import { readLane } from "./lane.ts"
import { type Confirmed, checkLog, type Stored } from "./log-checker.ts"
import { checkProgress } from "./progress-checker.ts"

const partitions = 4
const policies = ["each", "polling", "all", "disabled"] as const

const writers = 3

/** The most reports of a child before it is killed: its life is measured in work, so that a slow machine proves as much. */
const mostReports = 400

/** A child with nothing to report is killed after so long, in ms. */
const longestLifeMs = 1_500

/** The kill comes within so many ms of the report that it was due at: anywhere in what the child does next. */
const jitterMs = 8

/** Children that are killed before they are at work live for so long at most, in ms. */
const longestStartMs = 200

/** What a sweep did, for the report. */
export interface SweepResult {
  readonly kills: number
  readonly confirmed: number
  readonly stored: number
  readonly handled: number
  readonly committed: number
}

/** What a store that is opened after a kill must be. */
export interface SweepOptions {
  readonly url: string
  /** How many processes are killed, at least: a round kills four. */
  readonly kills: number
  readonly random: Random
  /** A directory for the children's programs and what Node keeps of them. */
  readonly cache: string
  /** Checks the files while nobody has them open; throws when something is wrong. */
  readonly verify: () => Promise<void>
}

/** @throws Error that lists what is lost, doubled, out of order or committed too far. */
export async function sweep(options: SweepOptions): Promise<SweepResult> {
  const alive: CrashChild[] = []
  try {
    await prepareChildren(options.cache)
    return await rounds(options, alive)
  } finally {
    await Promise.all(alive.map((child) => child.kill()))
  }
}

/** @param alive Every child that was started: whatever happens, none of them outlives the sweep. */
async function rounds(options: SweepOptions, alive: CrashChild[]): Promise<SweepResult> {
  const { url, random } = options
  const confirmed: Confirmed[] = []
  const lives: { handled: Stored[]; before: Map<number, bigint> }[] = []
  let kills = 0
  let log: Stored[] = []
  let progress = new Map<number, bigint>()
  let next = crew(options, 0, confirmed, lives)
  alive.push(...next.children)
  for (let round = 1; kills < options.kills; round++) {
    const { children, life } = next
    for (const child of children) child.go()
    life.before = progress
    next = crew(options, round, confirmed, lives)
    alive.push(...next.children)
    await Promise.all(children.map((child) => live(child, random)))
    kills += children.length

    const complaints = children.map((child) => child.complaints).filter((text) => text !== "")
    if (complaints.length > 0) throw new Error(`round ${round}: ${complaints.join("\n")}`)
    ;({ log, progress } = await inspect(url))
    await options.verify()
    const problems = [...checkLog(confirmed, log), ...checkProgress(lives, progress, log)]
    if (problems.length > 0) throw new Error(`after ${kills} kills, round ${round}:\n${problems.join("\n")}`)
  }
  const handled = lives.reduce((sum, life) => sum + life.handled.length, 0)
  const committed = [...progress.values()].reduce((sum, offset) => sum + Number(offset), 0)
  return { kills, confirmed: confirmed.length, stored: log.length, handled, committed }
}

interface Crew {
  readonly children: CrashChild[]
  readonly life: { handled: Stored[]; before: Map<number, bigint> }
}

/** The children of a round: some writers and a reader. They load their code while the round before is under way. */
function crew(
  { url, cache }: SweepOptions,
  round: number,
  confirmed: Confirmed[],
  lives: { handled: Stored[]; before: Map<number, bigint> }[],
): Crew {
  const life = { handled: [] as Stored[], before: new Map<number, bigint>() }
  lives.push(life)
  const children = Array.from(
    { length: writers },
    (_, index) =>
      new CrashChild("writer-child", [url, `w${round}-${index}`, String(partitions)], {
        cache,
        take: (words) => {
          if (words[0] === "c") confirmed.push(placeOf(words[1], words[2], words[3], words[4]))
        },
      }),
  )
  const policy = policies[round % policies.length] as string
  children.push(
    new CrashChild("consumer-child", [url, String(partitions), policy], {
      cache,
      take: (words) => {
        if (words[0] === "h") life.handled.push(placeOf(words[3], words[4], words[1], words[2]))
      },
    }),
  )
  return { children, life }
}

/** Some die while they open the store, most at work. */
async function live(child: CrashChild, random: Random): Promise<void> {
  const early = random.uint32() % 8 === 0
  const reports = random.uint32() % mostReports
  const delay = random.uint32()
  if (!early) {
    await child.atWork()
    await child.reported(reports, longestLifeMs)
  }
  await new Promise((resolve) => setTimeout(resolve, delay % (early ? longestStartMs : jitterMs)))
  await child.kill()
}

/** What a client that opens the store now finds. */
async function inspect(url: string): Promise<{ log: Stored[]; progress: Map<number, bigint> }> {
  const client: Client = await connect(url)
  try {
    const topic = client.stream("crash").topic("lanes")
    await topic.ensure(partitions)
    return { log: await readLog(topic), progress: await readProgress(topic) }
  } finally {
    await client.close()
  }
}

async function readLog(topic: Topic): Promise<Stored[]> {
  const log: Stored[] = []
  for (const { partition, first, end } of await topic.watermarks()) {
    if (first === end) continue
    await using reader = topic.consumer(undefined, partition, { startAt: { kind: "first" } })
    for await (const message of reader) {
      log.push({ ...readLane(message.payload), partition, offset: message.position.offset })
      if (message.position.offset + 1n >= end) break
    }
  }
  return log
}

/** The group's stored offsets as the next to read. A member that joins for it commits nothing. */
async function readProgress(topic: Topic): Promise<Map<number, bigint>> {
  const progress = new Map<number, bigint>()
  await using member = await topic.consumerGroup("readers").consumer({ commitPolicy: { kind: "disabled" } })
  for (let partition = 0; partition < partitions; partition++) {
    const stored = await member.storedOffset(partition)
    if (stored !== undefined) progress.set(partition, stored.stored + 1n)
  }
  return progress
}

function placeOf(lane = "", counter = "", partition = "", offset = "0"): Stored {
  return { lane, counter: Number(counter), partition: Number(partition), offset: BigInt(offset) }
}
