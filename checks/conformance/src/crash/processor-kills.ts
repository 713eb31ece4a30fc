/**
 * Kills processors with SIGKILL at instants that a seed decides, life after life on one topic, while others of their group go on, and
 * compares what went in with what came out.
 */
import { type Client, connect, type Topic } from "millrace"
import { until } from "../rig/deadline.ts"
import { CrashChild } from "./child.ts"
import { prepareChildren } from "./child-programs.ts"
import type { KillRun } from "./kill-run.ts"
import { Line } from "./line.ts"
import { differences, inputOf, inputTopic, outputTopic, partitions, processGroup } from "./processing.ts"

/** Records that are sent for each life of each processor. */
const recordsPerLife = 150
/** Messages that a processor handles before it is killed. */
const reports = { least: 0, most: 120 } as const
/** One that is given nothing is killed after so long, in ms, beside the session time-out. */
const longestLifeMs = 1_000
const jitterMs = 8
/** Processors that live at the same time. */
const atOnce = 2

export interface ProcessorKillOptions extends KillRun {
  readonly kills: number
  /** How soon a member that was killed is taken for dead, in ms. */
  readonly sessionTimeoutMs: number
}

export interface ProcessorKillResult {
  readonly kills: number
  readonly records: number
  /** Messages that were given to a handler again: their first transaction did not commit. */
  readonly repeated: number
}

/** @throws Error that lists what is missing, there twice, or out of order */
export async function killProcessors(options: ProcessorKillOptions): Promise<ProcessorKillResult> {
  await prepareChildren(options.cache)
  await using client = await connect(options.url, { stream: options.stream })
  const [input, output] = [client.topic(inputTopic), client.topic(outputTopic)]
  await input.ensure(partitions)
  await output.ensure(partitions)
  const handled = new Map<string, number>()
  const each = Math.ceil(options.kills / atOnce)
  await Promise.all(
    Array.from({ length: atOnce }, async (_, number) => {
      await using line = lineOf(options, handled)
      for (let life = 0; life < each; life++) {
        await send(input, `${number}.${life}`)
        await line.live()
      }
    }),
  )
  const records = each * atOnce * recordsPerLife
  await finish(client, records)
  const problems = await differences(input, output)
  if (problems.length > 0) throw new Error(problems.join("\n"))
  const given = [...handled.values()].reduce((sum, times) => sum + times, 0)
  return { kills: each * atOnce, records, repeated: given - handled.size }
}

/** @param handled Gets how often the message of each place was given to a handler. */
function lineOf(options: ProcessorKillOptions, handled: Map<string, number>): Line {
  const { url, stream, random, cache, sessionTimeoutMs } = options
  const take = ([, partition, offset]: string[]): void => {
    const place = `${partition}/${offset}`
    handled.set(place, (handled.get(place) ?? 0) + 1)
  }
  return new Line({
    random,
    reports,
    longestLifeMs: longestLifeMs + sessionTimeoutMs,
    jitterMs,
    spawn: () => new CrashChild("processor-child", [url, stream, `${sessionTimeoutMs}`], { cache, take }),
  })
}

async function send(topic: Topic, name: string): Promise<void> {
  const producer = topic.producer()
  for (let from = 0; from < recordsPerLife; from += 10) {
    const records = Array.from({ length: 10 }, (_, index) => ({
      payload: new TextEncoder().encode(`${name}.${from + index}`),
      partition: index % partitions,
    }))
    await producer.sendBatch(records)
  }
  await producer.shutdown()
}

/** A processor that nobody kills does what is left. */
async function finish(client: Client, records: number): Promise<void> {
  const output = client.topic(outputTopic)
  await using processor = client.process({
    from: { topic: client.topic(inputTopic), group: processGroup },
    to: output,
    handler: (message) => ({ payload: inputOf(message), partition: message.position.partition }),
  })
  const all = until(
    "every input to come out",
    async () => {
      const marks = await output.watermarks()
      return marks.reduce((sum, { end }) => sum + Number(end), 0) >= records ? true : undefined
    },
    60_000,
  )
  await Promise.race([all, processor.done])
  await processor.shutdown()
}
