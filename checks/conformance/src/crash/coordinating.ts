/**
 * A coordinator of two-phase commits, as one outside would be: it keeps a journal of its own, and holds to what stands there. What it has
 * not written down when it dies is aborted.
 */
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs"
import type { Client, Message, Topic, TransactionalProducer } from "millrace"

export const coordinatorId = "coordinator"
/** Each transaction has records in both. */
export const topicNames = ["left", "right"] as const
export const partitions = 2
/** To each topic, in each transaction. */
export const recordsEach = 6

const utf8 = new TextEncoder()
const strict = new TextDecoder("utf-8", { fatal: true })

/** What is decided of one transaction, before anything of it is done. */
export interface Decision {
  readonly name: string
  readonly commits: boolean
  /** As `prepare` gave it. */
  readonly token: string
}

/** Decisions in a file, in their order; one that was cut by a kill was not taken. */
export class Journal {
  readonly #path: string

  constructor(path: string) {
    this.#path = path
    closeSync(openSync(path, "a"))
  }

  /** Is on the disk when this returns. */
  write({ name, commits, token }: Decision): void {
    const file = openSync(this.#path, "a")
    try {
      writeSync(file, `${name} ${commits ? "commit" : "abort"} ${token}\n`)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
  }

  read(): Decision[] {
    const lines = readFileSync(this.#path, "utf8").split("\n").slice(0, -1)
    return lines.map((line) => {
      const [name, what, token] = line.split(" ")
      if (name === undefined || token === undefined) throw new Error(`a line of the journal is ${JSON.stringify(line)}`)
      return { name, commits: what === "commit", token }
    })
  }
}

/** What a coordinator does first: it ends what an earlier one has left prepared. @returns what came of it; absent when nothing was left */
export async function recover(
  client: Client,
  producer: TransactionalProducer,
  journal: Journal,
): Promise<"committed" | "aborted" | undefined> {
  await producer.init({ keepPrepared: true })
  const listed = await client.transactions()
  if ((producer.state === "Prepared") !== (listed.length === 1)) {
    throw new Error(`the producer is ${producer.state}, but ${listed.length} prepared transactions are listed`)
  }
  if (producer.state !== "Prepared") return undefined
  const [prepared] = listed
  if (prepared?.transactionalId !== coordinatorId || !(prepared.ageMs >= 0)) throw new Error(JSON.stringify(prepared))
  const last = journal.read().at(-1)
  return await producer.complete(last?.commits ? last.token : "")
}

/** The record of that index, in either topic. */
export function recordOf(name: string, index: number): { payload: Uint8Array; partition: number } {
  return { payload: utf8.encode(`${name}/${index}`), partition: index % partitions }
}

/** Compares what stands in the topics with what was decided. @returns what differs */
export async function contradictions(topics: readonly Topic[], decisions: readonly Decision[]): Promise<string[]> {
  const decided = decisions.filter(({ commits }) => commits)
  const wanted = decided.flatMap(({ name }) => Array.from({ length: recordsEach }, (_, index) => `${name}/${index}`))
  const problems: string[] = []
  for (const topic of topics) {
    const counts = new Map(wanted.map((record) => [record, 0]))
    for (const { payload } of await contents(topic)) {
      const record = strict.decode(payload ?? undefined)
      const times = counts.get(record)
      if (times === undefined) problems.push(`${topic.name} has ${record}, which nobody decided to commit`)
      else counts.set(record, times + 1)
    }
    for (const [record, times] of counts) if (times !== 1) problems.push(`${topic.name} has ${record} ${times} times`)
  }
  return problems
}

async function contents(topic: Topic): Promise<Message[]> {
  const messages: Message[] = []
  await using cursor = await topic.replay()
  for await (const result of cursor.stream()) {
    if (result.kind === "error") throw result.error
    if (result.kind === "record") messages.push(result.message.copy())
  }
  return messages
}
