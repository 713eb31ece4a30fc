/**
 * Kills processors with SIGKILL at instants that a seed decides, life after life on one topic, while others of their group go on, and
 * compares what went in with what came out.
 */
import type { Random } from "@millrace/runtime"
import { type Client, connect, type Topic } from "millrace"
import { until } from "../rig/deadline.ts"
import { CrashChild } from "./child.ts"
import { prepareChildren } from "./child-programs.ts"
import { differences, inputOf, inputTopic, outputTopic, partitions, processGroup } from "./processing.ts"

/** Records that are sent for each life of each processor. */
const recordsPerLife = 150
/** The most messages that a processor handles before it is killed. */
const mostHandled = 120
/** One that is given nothing is killed after so long, in ms, beside the session time-out. */
const longestLifeMs = 1_000
/** The kill comes within so many ms of the report that it was due at. */
const jitterMs = 8
/** Processors that live at the same time. */
const atOnce = 2

export interface ProcessorKillOptions {
  readonly url: string
  readonly stream: string
  readonly kills: number
  /** How soon a member that was killed is taken for dead, in ms. */
  readonly sessionTimeoutMs: number
  readonly random: Random
  /** A directory for the children's programs and what Node keeps of them. */
  readonly cache: string
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
  const lines = Array.from({ length: atOnce }, () => new Line(options, handled))
  try {
    const each = Math.ceil(options.kills / atOnce)
    await Promise.all(
      lines.map(async (line, number) => {
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
  } finally {
    await Promise.all(lines.map((line) => line.end()))
  }
}

/** Processors one after the other; the next one loads its code while the one before it lives. */
class Line {
  readonly #options: ProcessorKillOptions
  readonly #handled: Map<string, number>
  #next: CrashChild
  #life = 0

  constructor(options: ProcessorKillOptions, handled: Map<string, number>) {
    this.#options = options
    this.#handled = handled
    this.#next = this.#spawn()
  }

  /** One life: from the start to the kill. */
  async live(): Promise<void> {
    const { random, sessionTimeoutMs } = this.#options
    const [reports, jitter] = [random.uint32() % mostHandled, random.uint32() % jitterMs]
    const child = this.#next
    child.go()
    await child.atWork()
    await child.reported(reports, longestLifeMs + sessionTimeoutMs)
    await new Promise((resolve) => setTimeout(resolve, jitter))
    await child.kill()
    this.#life++
    if (child.complaints !== "") throw new Error(`life ${this.#life}: ${child.complaints}`)
    this.#next = this.#spawn()
  }

  async end(): Promise<void> {
    await this.#next.kill()
  }

  #spawn(): CrashChild {
    const { url, stream, cache, sessionTimeoutMs } = this.#options
    return new CrashChild("processor-child", [url, stream, `${sessionTimeoutMs}`], {
      cache,
      take: ([, partition, offset]) => {
        const place = `${partition}/${offset}`
        this.#handled.set(place, (this.#handled.get(place) ?? 0) + 1)
      },
    })
  }
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
