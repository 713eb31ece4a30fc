import type { OffsetEntry, OffsetOwner } from "@millrace/contract"
import { deadLetterBlock } from "@millrace/core"
import type { FaultyBackend } from "../backend/faulty-backend.ts"
import type { SimBatch } from "../backend/sim-batch.ts"
import type { SimTransaction, TransactionWatch } from "../backend/transaction-watch.ts"
import { ProgramDesk } from "../program-desk.ts"
import { numberIn } from "../record-number.ts"
import { streamName } from "../workload/world.ts"
import { KeptTokens } from "./kept-tokens.ts"
import { TransactionFact } from "./transaction-facts.ts"

/** What outputs of an input there are to be. */
export interface OutputRule {
  /** How many records of the topic there are for the input of this number. */
  readonly outputs: (number: number) => number
  readonly topic: string
}

/** Compares what programs were told of their transactions with what the backend has done. */
export class TransactionDesk extends ProgramDesk implements TransactionWatch {
  readonly facts: TransactionFact[] = []
  readonly kept: KeptTokens = new KeptTokens()
  /** What is to come of the inputs of a group, by its name. */
  readonly rules: Map<string, readonly OutputRule[]> = new Map()
  /** How far each owner has stored its progress, by owner, partition and history. */
  readonly #progress = new Map<string, number>()
  committed = 0

  fact(transactionalId: string): TransactionFact {
    const fact = new TransactionFact(this.facts.length, transactionalId)
    this.facts.push(fact)
    return fact
  }

  // ---- what the backend tells ----

  began(transaction: SimTransaction): void {
    this.#tell(transaction, "begins")
  }

  prepared(transaction: SimTransaction, token: string): void {
    this.#tell(transaction, `is prepared as ${token}`)
  }

  committing(transaction: SimTransaction): void {
    this.committed++
    const offsets = transaction.offsets.flatMap(({ owner, entries }) => entries.map((entry) => ({ owner, entry })))
    if (this.trace.isOn) {
      const records = transaction.staged.flatMap(({ content }) => content.map(({ payload }) => numberIn(payload)))
      const stored = offsets.map(({ entry }) => `${entry.topic}/${entry.partition} to ${entry.offset}`)
      this.#tell(transaction, `is committed: records ${records.join(" ")}; ${stored.join(", ")}`)
    }
    const owner = offsets.find((one) => this.rules.has(one.owner.name))?.owner
    for (const rule of owner === undefined ? [] : (this.rules.get(owner.name) ?? [])) {
      if (owner !== undefined) this.#checkOutputs(transaction, { owner, rule })
    }
    for (const { owner: one, entry } of offsets) this.#progress.set(progressKey(one, entry), Number(entry.offset))
  }

  /** Progress is stored on its own: it may pass nothing that is to have outputs. */
  stored(owner: OffsetOwner, entry: OffsetEntry): void {
    const rules = this.rules.get(owner.name)
    if (rules === undefined) return
    const { topic, partition } = entry
    if (this.trace.isOn) this.trace.note("backend", `stores ${entry.offset} of ${topic}/${partition} for ${owner.name}`)
    const log = this.backend?.find({ stream: streamName, topic })?.log(partition)
    const from = this.#progress.get(progressKey(owner, entry)) ?? 0
    this.#progress.set(progressKey(owner, entry), Number(entry.offset))
    if (Number(entry.offset) < from) this.#goesBack(owner, entry, from)
    for (
      let offset = log?.visibleFrom(from) ?? 0;
      offset < Number(entry.offset);
      offset = log?.visibleFrom(offset + 1) ?? 0
    ) {
      const number = numberIn(log?.records[offset]?.payload ?? null)
      if (rules.every(({ outputs }) => outputs(number) === 0)) continue
      this.violate("offsets are stored with their outputs", `${owner.name} passes ${topic}/${partition}@${offset}`)
    }
  }

  aborted(transaction: SimTransaction, why: string): void {
    this.#tell(transaction, `is aborted: ${why}`)
  }

  refused(transactionalId: string, error: Error): void {
    if (this.trace.isOn) this.trace.note("backend", `refuses ${transactionalId}: ${error.message}`)
  }

  // ---- checks ----

  /** Everything that was told of transactions holds against the log. To be called at the end. */
  check(): void {
    const times = new Map<number, number>()
    for (const { log } of this.backend?.histories ?? []) {
      for (const { payload } of log.records) {
        const number = numberIn(payload)
        times.set(number, (times.get(number) ?? 0) + 1)
      }
    }
    for (const fact of this.facts) this.#checkFact(fact, times)
  }

  #checkFact(fact: TransactionFact, times: ReadonlyMap<number, number>): void {
    const { id, numbers, isAborted, isCommitted } = fact
    const there = numbers.filter((number) => times.has(number))
    const text = `of transaction ${id} of ${fact.transactionalId} ${there.length} of ${numbers.length} records are there`
    if (isAborted && isCommitted) {
      this.violate("one end", `transaction ${id} of ${fact.transactionalId} was told to be committed and aborted`)
    }
    if (there.length > 0 && there.length < numbers.length) this.violate("all or nothing", text)
    if (numbers.length === 0) return
    if (isCommitted && there.length === 0) this.violate("what was committed is there", text)
    else if (isAborted && there.length > 0) this.violate("what was aborted is not there", text)
    else if (!fact.mayBeThere && there.length > 0) this.violate("nothing appears without its commit", text)
    const twice = numbers.find((number) => (times.get(number) ?? 0) > 1)
    if (twice !== undefined)
      this.violate("once", `record ${twice} of transaction ${id} is there ${times.get(twice)} times`)
  }

  /** What a transaction stores of its progress is what its records are the outputs of. */
  #checkOutputs(
    transaction: SimTransaction,
    { owner, rule }: { readonly owner: OffsetOwner; readonly rule: OutputRule },
  ): void {
    const outputs = countsOf(transaction.staged, rule.topic)
    const unread = unreadIn(transaction.staged)
    for (const { owner: other, entries } of transaction.offsets) {
      if (other.name !== owner.name) continue
      for (const entry of entries) {
        this.#checkEntry({ owner, rule, outputs, entry, isUnread: unread.delete(placeText(entry)) })
      }
    }
    for (const place of unread) {
      this.violate(
        "outputs come with their inputs",
        `the dead letter of what cannot be read of ${place} comes without its offset`,
      )
    }
    for (const [number, count] of outputs) {
      this.violate("outputs come with their inputs", `${count} records of input ${number} come without its offset`)
    }
  }

  #checkEntry({ owner, rule, outputs, entry, isUnread }: EntryCheck): void {
    const backend = this.backend as FaultyBackend
    const { topic, partition } = entry
    const log = backend.find({ stream: streamName, topic })?.log(partition)
    const stored = backend.offsets.peek(owner, entry)
    // What was trimmed away may have been read before.
    const from = Number(stored ?? 0n)
    if (Number(entry.offset) < from) this.#goesBack(owner, entry, from)
    for (let offset = from; offset < Number(entry.offset); offset++) {
      const number = numberIn(log?.records[offset]?.payload ?? null)
      const count = outputs.get(number) ?? 0
      outputs.delete(number)
      const expected = rule.outputs(number)
      const isGone = offset < (log?.first ?? 0) || log?.hidden.has(offset) === true
      if (count === expected || (isGone && count === 0)) continue
      // Nobody has seen what it is: its dead letter has the place alone. What lies before it was stored before.
      if (isUnread && count === 0 && offset === Number(entry.offset) - 1) continue
      this.violate(
        "one output for each input",
        `${topic}/${partition}@${offset} (input ${number}) is stored as done with ${count} of ${expected} records in ${rule.topic}`,
      )
    }
  }

  #goesBack({ name }: OffsetOwner, { topic, partition, offset }: OffsetEntry, from: number): void {
    this.violate("progress never goes back", `${name} stores ${offset} of ${topic}/${partition} after ${from}`)
  }

  #tell({ transactionalId, number }: SimTransaction, text: string): void {
    if (this.trace.isOn) this.trace.note("backend", `transaction ${number} of ${transactionalId} ${text}`)
  }
}

interface EntryCheck {
  readonly owner: OffsetOwner
  readonly rule: OutputRule
  readonly outputs: Map<number, number>
  readonly entry: OffsetEntry
  /** There is a dead letter for a record of the partition that could not be read. */
  readonly isUnread: boolean
}

/** How many records of each input there are in a topic. */
function countsOf(staged: readonly SimBatch[], topic: string): Map<number, number> {
  const counts = new Map<number, number>()
  for (const batch of staged) {
    if (batch.topic.topic !== topic) continue
    for (const { payload } of batch.content) {
      if (payload === null) continue
      const number = numberIn(payload)
      counts.set(number, (counts.get(number) ?? 0) + 1)
    }
  }
  return counts
}

/** The partitions of which a record could not be read, by the dead letters for that. */
function unreadIn(staged: readonly SimBatch[]): Set<string> {
  const places = new Set<string>()
  for (const { content } of staged) {
    for (const { payload, headers } of content) {
      const letter = payload === null ? deadLetterBlock(headers) : undefined
      if (letter?.content === "none") places.add(placeText({ topic: letter.origin.topic, partition: letter.partition }))
    }
  }
  return places
}

function placeText({ topic, partition }: Pick<OffsetEntry, "topic" | "partition">): string {
  return `${topic}/${partition}`
}

function progressKey({ name }: OffsetOwner, { topic, partition, lineage }: OffsetEntry): string {
  return `${name}\n${topic}/${partition}/${lineage}`
}
