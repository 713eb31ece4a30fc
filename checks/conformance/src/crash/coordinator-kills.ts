/** Kills a coordinator with SIGKILL at instants that a seed decides, life after life, and compares what it decided with what is there. */
import { join } from "node:path"
import { connect } from "millrace"
import { CrashChild } from "./child.ts"
import { prepareChildren } from "./child-programs.ts"
import { contradictions, coordinatorId, Journal, partitions, recover, topicNames } from "./coordinating.ts"
import type { KillRun } from "./kill-run.ts"
import { Line } from "./line.ts"

/** A coordinator is killed after so many reports: it has decided one transaction, and is anywhere in that or the next two. */
const reports = { least: 4, most: 13 } as const
/** One that reports nothing is killed after so long, in ms. */
const longestLifeMs = 10_000
const jitterMs = 4

export interface CoordinatorKillOptions extends KillRun {
  readonly kills: number
}

export interface CoordinatorKillResult {
  /** Transactions that were decided. */
  readonly decided: number
  /** Those that a later life found prepared, and how these ended. */
  readonly committed: number
  readonly aborted: number
}

/** @throws Error that lists what was committed against the decision, or is missing */
export async function killCoordinators(options: CoordinatorKillOptions): Promise<CoordinatorKillResult> {
  const { url, stream, cache } = options
  await prepareChildren(cache)
  await using client = await connect(url, { stream })
  const topics = topicNames.map((name) => client.topic(name))
  await Promise.all(topics.map((topic) => topic.ensure(partitions)))
  const endings = { committed: 0, aborted: 0, nothing: 0 }
  const journalFile = join(options.directory, "journal")
  const take = ([word, ending]: string[]): void => {
    if (word === "recovered") endings[ending as keyof typeof endings]++
  }
  const spawn = (life: number): CrashChild =>
    new CrashChild("coordinator-child", [url, stream, journalFile, `${life}`], { cache, take })
  {
    await using line = new Line({ random: options.random, spawn, reports, longestLifeMs, jitterMs })
    for (let life = 0; life < options.kills; life++) await line.live()
  }
  const journal = new Journal(journalFile)
  await using last = client.transactionalProducer({ transactionalId: coordinatorId })
  endings[(await recover(client, last, journal)) ?? "nothing"]++
  const decisions = journal.read()
  const problems = await contradictions(topics, decisions)
  if (problems.length > 0) throw new Error(problems.join("\n"))
  return { decided: decisions.length, committed: endings.committed, aborted: endings.aborted }
}
