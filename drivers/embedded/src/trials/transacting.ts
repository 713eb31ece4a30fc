/** A program that works in transactions: each moves a consumer's offset on by one, and writes so many records that say which one it was. */
import { MillraceError, type Position, type TopicDescription, type TransactionSession } from "@millrace/contract"
import type { LogSession } from "./thread-session.ts"
import { ensureTopic, sealTrialBatch } from "./trial-log.ts"
import { readTrialPayload } from "./trial-record.ts"

/** The topic of the outputs, and the one whose offset counts the transactions. */
export const outputs = { stream: "trials", topic: "outputs" }
const inputs = { stream: "trials", topic: "inputs" }

/** Partitions of the outputs. */
export const outputPartitions = 3

/** What a transaction writes to each partition of the outputs. */
export const outputRecords = 4

const owner = { kind: "consumer", name: "worker" } as const
const timeoutMs = 600_000

/** Steps of one transaction; behind each of them its process may end. */
export const steps = ["init", "begin", "append", "enlist", "prepare", "commit", "abort"] as const
export type TransactingStep = (typeof steps)[number]

/** What is told of a transaction: its number, and that it committed or was prepared under a token. */
export type Told = { readonly committed: number } | { readonly prepared: number; readonly token: string }

/** One incarnation at work. */
export class Transacting {
  readonly #session: LogSession
  readonly #topics: { readonly inputs: TopicDescription; readonly outputs: TopicDescription }
  readonly #transactions: TransactionSession
  /** The number of the transaction that comes next. */
  #next: number

  private constructor(
    session: LogSession,
    topics: { readonly inputs: TopicDescription; readonly outputs: TopicDescription },
    options: { readonly transactions: TransactionSession; readonly next: number },
  ) {
    this.#session = session
    this.#topics = topics
    this.#transactions = options.transactions
    this.#next = options.next
  }

  /** Goes on where the last incarnation ended: what it had prepared is committed, or aborted when `lose` says so. */
  static async start(session: LogSession, options: { readonly lose?: boolean } = {}): Promise<Transacting> {
    const topics = {
      inputs: await ensureTopic(session, inputs),
      outputs: await ensureTopic(session, outputs, { partitions: outputPartitions }),
    }
    const transactions = await session.transactions.init("worker", { timeoutMs, keepPrepared: true })
    const { prepared } = transactions
    if (prepared !== undefined) await transactions.complete(options.lose === true ? `${prepared}1` : prepared)
    return new Transacting(session, topics, { transactions, next: await nextOf(session) })
  }

  /** One transaction, from its beginning to its end. `after` is told each step when it was done. */
  async run(
    how: { readonly prepare: boolean; readonly abort: boolean; readonly bytes: number },
    after: (step: TransactingStep, told?: Told) => void | Promise<void>,
  ): Promise<void> {
    const transaction = await this.#transactions.begin()
    await after("begin")
    const number = this.#next
    let first = number * outputRecords
    // Small batches stay in the database, and large ones go to segments.
    for (const count of [1, outputRecords - 1]) {
      const batches = Array.from({ length: outputPartitions }, (_, partition) =>
        sealTrialBatch(this.#session, this.#topics.outputs, { writer: 1, first, count, bytes: how.bytes, partition }),
      )
      await Promise.all(batches.map((batch) => this.#session.log.append(batch, { transaction })))
      for (const batch of batches) batch.release()
      first += count
      await after("append")
    }
    const { lineage } = this.#topics.inputs
    const entry = { ...inputs, partition: 0, offset: BigInt(number + 1), lineage }
    await this.#transactions.enlistOffsets(transaction, owner, [entry])
    await after("enlist")
    if (how.prepare) {
      const token = await this.#transactions.prepare(transaction)
      await after("prepare", { prepared: number, token })
    }
    if (how.abort) {
      await this.#transactions.abort(transaction)
      await after("abort")
      return
    }
    const results = await this.#transactions.commit(transaction)
    if (results.length !== 2 * outputPartitions) throw new Error(`a commit told of ${results.length} batches`)
    this.#next += 1
    await after("commit", { committed: number })
  }
}

/** How many transactions have committed, by the offset. */
export async function nextOf(session: LogSession): Promise<number> {
  const [found] = await session.offsets.load(owner, [{ ...inputs, partition: 0 }])
  if (found instanceof MillraceError) throw found
  return Number((found as Position | undefined)?.offset ?? 0n)
}

/** The numbers of the records of a partition of the outputs. */
export function numbersOf(payloads: readonly (Uint8Array | null)[]): number[] {
  return payloads.map((payload) => readTrialPayload(payload).sequence)
}
