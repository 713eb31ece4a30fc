/**
 * Kills readers of every kind with SIGKILL at instants that a seed decides, life after life on one topic, and checks what each kind
 * promises: who stores behind the handling passes nothing that nobody handled; who stores with the read repeats nothing.
 */
import { connect, NotFoundError, type Topic } from "millrace"
import { CrashChild } from "./child.ts"
import { prepareChildren } from "./child-programs.ts"
import type { KillRun } from "./kill-run.ts"
import { lanePayload, readLane } from "./lane.ts"
import { Line } from "./line.ts"
import type { Stored } from "./log-checker.ts"
import { checkAtLeastOnce, checkAtMostOnce, type Readings } from "./reader-checker.ts"
import { type ReaderKind, readAhead } from "./reader-kinds.ts"

/** Keys of the records: the lanes whose order a run keeps. */
const keys = 5
/** Records that are sent for each life. */
const recordsPerLife = 120
/** The most reports of each reader of a process, taken together, before it is killed. */
const mostReports = 90
/** Readers with nothing to report are killed after so long, in ms, beside the session time-out: a member waits until the one before it is given up. */
const longestLifeMs = 2_000
const jitterMs = 6

export interface KillOptions extends KillRun {
  /** Processes that are killed, one after the other, in each crew. */
  readonly lives: number
  /** Kinds of readers; those of a crew read, and are killed, in one process. */
  readonly crews: readonly (readonly ReaderKind[])[]
  /** How soon a member that was killed is taken for dead, in ms. */
  readonly sessionTimeoutMs: number
}

/** What was done: kills, messages that were handled, those of them that were handled again, and offsets that are stored, of all kinds. */
export interface KillResult {
  readonly kills: number
  readonly handled: number
  readonly repeated: number
  readonly stored: number
}

/** @throws Error that lists what was passed over, repeated or out of order, by kind. */
export async function killReaders(options: KillOptions): Promise<KillResult> {
  await prepareChildren(options.cache)
  await using client = await connect(options.url)
  const topic = client.stream(options.stream).topic(topicName)
  await topic.ensure(1)
  const crews = options.crews.map((kinds) => kinds.map((kind): Reader => ({ kind, lives: [], stored: new Map() })))
  const readers = crews.flat()
  for (const { kind } of readers) if (kind.filtered) await topic.consumerGroup(kind.name).filter().configure(evens)
  {
    await using owner = new AsyncDisposableStack()
    const lines = crews.map((crew) => owner.use(lineOf(crew, options)))
    for (let life = 0; life < options.lives; life++) {
      await send(topic, life)
      for (const { kind, lives } of readers) lives.push({ handled: [], before: await storedOf(topic, kind) })
      await Promise.all(lines.map((line) => line.live()))
    }
  }
  const log = await readLog(topic)
  const problems: string[] = []
  for (const reader of readers) {
    reader.stored = await storedOf(topic, reader.kind)
    problems.push(...problemsOf(reader, log).map((one) => `${reader.kind.name}: ${one}`))
  }
  if (problems.length > 0) throw new Error(problems.join("\n"))
  return resultOf(options.lives * crews.length, readers)
}

const topicName = "lanes"
const evens = { where: { header: "even", op: "eq", value: "yes" } } as const

/** What one kind of reader did over its lives. */
interface Reader {
  readonly kind: ReaderKind
  readonly lives: { readonly handled: Stored[]; readonly before: Map<number, bigint> }[]
  /** In the end. */
  stored: Map<number, bigint>
}

/** Readers that live and are killed together, in one process after the other. */
function lineOf(crew: readonly Reader[], options: KillOptions): Line {
  const { url, stream, random, cache, sessionTimeoutMs } = options
  const names = crew.map(({ kind }) => kind.name)
  const take = ([, name, partition, offset = "0", lane = "", counter]: string[]): void => {
    const life = crew.find(({ kind }) => kind.name === name)?.lives.at(-1)
    life?.handled.push({ lane, counter: Number(counter), partition: Number(partition), offset: BigInt(offset) })
  }
  return new Line({
    random,
    reports: { least: 0, most: mostReports * crew.length },
    longestLifeMs: longestLifeMs + (crew.some(({ kind }) => kind.member) ? sessionTimeoutMs : 0),
    jitterMs,
    spawn: () =>
      new CrashChild("reader-child", [url, stream, topicName, names.join(), `${sessionTimeoutMs}`], { cache, take }),
  })
}

function problemsOf({ kind, lives, stored }: Reader, log: readonly Stored[]): string[] {
  const order = kind.how === "run" ? "key" : kind.how === "marks" ? "none" : "partition"
  const wants = (record: Stored): boolean => kind.filtered !== true || record.counter % 2 === 0
  const readings: Readings = { lives, stored, log, wants, order }
  if (kind.commitPolicy.kind !== "onRead") return checkAtLeastOnce(readings)
  // Beside what lies read ahead: a poll under way, and the message that was handed out and not reported.
  return checkAtMostOnce(readings, { mostLost: 2 * readAhead + 1 })
}

/** Batches of all sizes, so that reads end anywhere. */
async function send(topic: Topic, life: number): Promise<void> {
  const producer = topic.producer()
  const each = recordsPerLife / keys
  for (let from = life * each; from < (life + 1) * each; ) {
    const to = Math.min(from + 1 + (from % 7), (life + 1) * each)
    const records = []
    for (let counter = from; counter < to; counter++) {
      for (let key = 0; key < keys; key++) {
        const headers = { even: counter % 2 === 0 ? "yes" : "no" }
        records.push({ payload: lanePayload(`k${key}`, counter), key: `k${key}`, headers })
      }
    }
    await producer.sendBatch(records)
    from = to
  }
  await producer.shutdown()
}

async function readLog(topic: Topic): Promise<Stored[]> {
  const log: Stored[] = []
  await using cursor = await topic.replay()
  for await (const result of cursor.stream()) {
    if (result.kind === "error") throw result.error
    if (result.kind !== "record") continue
    const { partition, offset } = result.message.position
    log.push({ ...readLane(result.message.payload), partition, offset })
  }
  return log
}

/** What is stored for a reader, as the next offsets; asking joins nothing and stores nothing. */
async function storedOf(topic: Topic, { name, member }: ReaderKind): Promise<Map<number, bigint>> {
  if (member !== undefined) return groupProgress(topic, name)
  const observer = topic.consumer(name, 0, { commitPolicy: { kind: "disabled" } })
  try {
    const stored = await observer.storedOffset()
    return new Map(stored === undefined ? [] : [[0, stored.stored + 1n]])
  } finally {
    await observer.shutdown()
  }
}

async function groupProgress(topic: Topic, name: string): Promise<Map<number, bigint>> {
  const progress = new Map<number, bigint>()
  try {
    for (const { partition, storedOffset } of (await topic.consumerGroup(name).describe()).lag) {
      if (storedOffset !== undefined) progress.set(partition, storedOffset + 1n)
    }
  } catch (error) {
    // Its first reader makes it.
    if (!(error instanceof NotFoundError)) throw error
  }
  return progress
}

function resultOf(kills: number, readers: readonly Reader[]): KillResult {
  let [handled, places, stored] = [0, 0, 0]
  for (const reader of readers) {
    const all = reader.lives.flatMap((life) => life.handled)
    handled += all.length
    places += new Set(all.map(({ offset }) => offset)).size
    stored += Number(reader.stored.get(0) ?? 0n)
  }
  return { kills, handled, repeated: handled - places, stored }
}
