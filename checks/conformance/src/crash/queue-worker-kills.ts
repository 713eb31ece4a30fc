/**
 * Kills workers of a queue with SIGKILL at instants that a seed decides, life after life, while others go on, and checks what they were
 * given against what they knew to be acknowledged.
 */
import { connect, type Queue, type QueueMessage, type Topic } from "millrace"
import { until } from "../rig/deadline.ts"
import { CrashChild } from "./child.ts"
import { prepareChildren } from "./child-programs.ts"
import type { KillRun } from "./kill-run.ts"
import { Line } from "./line.ts"
import { partitions, WorkLedger, workQueue, workTopic } from "./queue-working.ts"

/** Records that are sent for each life of each worker, to each partition. */
const recordsPerLife = 40
/** Reports of a worker before it is killed. */
const reports = { least: 0, most: 80 } as const
/** One that is given nothing is killed after so long, in ms. */
const longestLifeMs = 600
const jitterMs = 6
/** Workers that live at the same time. */
const atOnce = 2
/** How soon what a dead worker held comes to others, in ms. */
const ackWaitMs = 500

export interface WorkerKillOptions extends KillRun {
  readonly kills: number
}

export interface WorkerKillResult {
  readonly kills: number
  readonly records: number
  /** Messages that came to workers more than once. */
  readonly repeated: number
  /** Acknowledgements that were known to be confirmed. */
  readonly acknowledged: number
}

/** @throws Error that lists what was lost, came again behind its ack, or went to two at once */
export async function killWorkers(options: WorkerKillOptions): Promise<WorkerKillResult> {
  await prepareChildren(options.cache)
  await using client = await connect(options.url, { stream: options.stream })
  const topic = client.topic(workTopic)
  await topic.ensure(partitions)
  const queue = topic.queue(workQueue, { ackWaitMs, maxAckPending: false })
  await (await queue.consumer()).shutdown()
  const ledger = new WorkLedger()
  const each = Math.ceil(options.kills / atOnce)
  await Promise.all(
    Array.from({ length: atOnce }, async (_, number) => {
      await using line = lineOf(options, ledger, number)
      for (let life = 0; life < each; life++) {
        await send(topic)
        await line.live()
      }
    }),
  )
  await finish(queue, ledger)
  const ends = (await topic.watermarks()).map(({ end }) => end)
  const problems = ledger.problems(ends)
  if (problems.length > 0) throw new Error(problems.join("\n"))
  const records = Number(ends.reduce((sum, end) => sum + end, 0n))
  return { kills: each * atOnce, records, repeated: ledger.repeated, acknowledged: ledger.acknowledged }
}

/** Its workers run and pull by turns, beside those of the next line that do the other. */
function lineOf({ url, stream, random, cache }: WorkerKillOptions, ledger: WorkLedger, number: number): Line {
  const take = (words: string[]): void => ledger.take(words)
  return new Line({
    random,
    reports,
    longestLifeMs,
    jitterMs,
    spawn: (life) => {
      const how = (life + number) % 2 === 0 ? "run" : "pull"
      return new CrashChild("queue-worker-child", [url, stream, how], { cache, take })
    },
  })
}

async function send(topic: Topic): Promise<void> {
  await using producer = topic.producer()
  for (let partition = 0; partition < partitions; partition++) {
    const payloads = Array.from({ length: recordsPerLife }, (_, index) => new TextEncoder().encode(`${index}`))
    await producer.sendBatch(payloads, { partition })
  }
}

/** A worker that nobody kills does what is left. */
async function finish(queue: Queue, ledger: WorkLedger): Promise<void> {
  const consumer = await queue.consumer()
  const work = async (message: QueueMessage): Promise<void> => {
    const words = [message.position.partition, message.position.offset, message.deliveries].map(String)
    ledger.take(["h", ...words])
    if (await message.ack({ confirm: true })) ledger.take(["a", ...words])
  }
  const run = consumer.run(work, { concurrency: 8 })
  const done = until("everything to be settled", async () => {
    const { pending, ackPending, delayed } = await queue.info()
    return pending === 0n && ackPending + delayed === 0 ? true : undefined
  })
  await Promise.race([done, run])
  await consumer.shutdown()
  await run
}
