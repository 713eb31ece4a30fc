/** Kills a coordinator with SIGKILL at instants that a seed decides, life after life, and compares what it decided with what is there. */
import type { Random } from "@millrace/runtime"
import { connect } from "millrace"
import { CrashChild } from "./child.ts"
import { prepareChildren } from "./child-programs.ts"
import { contradictions, coordinatorId, Journal, partitions, recover, topicNames } from "./coordinating.ts"

/** A coordinator is killed after so many reports: it has decided one transaction, and is anywhere in that or the next two. */
const reportsOf = { least: 4, most: 13 } as const
/** One that reports nothing is killed after so long, in ms. */
const longestLifeMs = 10_000
/** The kill comes within so many ms of the report that it was due at. */
const jitterMs = 4

export interface CoordinatorKillOptions {
  readonly url: string
  readonly stream: string
  readonly kills: number
  readonly random: Random
  /** A file that does not exist. */
  readonly journal: string
  /** A directory for the children's programs and what Node keeps of them. */
  readonly cache: string
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
  const { url, stream, random, cache } = options
  await prepareChildren(cache)
  await using client = await connect(url, { stream })
  const topics = topicNames.map((name) => client.topic(name))
  await Promise.all(topics.map((topic) => topic.ensure(partitions)))
  const endings = { committed: 0, aborted: 0, nothing: 0 }
  const spawn = (life: number): CrashChild =>
    new CrashChild("coordinator-child", [url, stream, options.journal, `${life}`], {
      cache,
      take: ([word, ending]) => {
        if (word === "recovered") endings[ending as keyof typeof endings]++
      },
    })
  let child = spawn(0)
  try {
    for (let life = 0; life < options.kills; life++) {
      const [reports, jitter] = [
        reportsOf.least + (random.uint32() % (1 + reportsOf.most - reportsOf.least)),
        random.uint32() % jitterMs,
      ]
      child.go()
      await child.atWork()
      await child.reported(reports, longestLifeMs)
      await new Promise((resolve) => setTimeout(resolve, jitter))
      await child.kill()
      if (child.complaints !== "") throw new Error(`life ${life}: ${child.complaints}`)
      child = spawn(life + 1)
    }
  } finally {
    await child.kill()
  }
  const journal = new Journal(options.journal)
  await using last = client.transactionalProducer({ transactionalId: coordinatorId })
  endings[(await recover(client, last, journal)) ?? "nothing"]++
  const decisions = journal.read()
  const problems = await contradictions(topics, decisions)
  if (problems.length > 0) throw new Error(problems.join("\n"))
  return { decided: decisions.length, committed: endings.committed, aborted: endings.aborted }
}
