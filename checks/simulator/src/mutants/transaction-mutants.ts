import type { Mutant } from "./mutant.ts"

/** The ways in which transactions and `process` are broken to see that a seed notices. */
export const transactionMutants: readonly Mutant[] = [
  {
    name: "commit what has lost a record",
    file: "transaction/transaction-control.ts",
    find: '    if (held === undefined) return\n    this.#machine.outcome({ kind: "refused" })\n    throw mustAbort(this.what, held)\n',
    replace: "",
  },
  {
    name: "commit what is still on its way",
    file: "transaction/transaction-control.ts",
    find: '    if (of.ending === "open") await this.#drain()\n    const results',
    replace: "    const results",
  },
  {
    name: "call an unanswered commit done",
    file: "transaction/transaction-control.ts",
    find: 'this.#end(() => this.#live.commit(handle), "committing the transaction")',
    replace: 'this.#end(() => this.#live.commit(handle), "committing the transaction").catch(() => [])',
  },
  {
    name: "complete under any token",
    file: "transaction/transaction-control.ts",
    find: "      else await this.#live.abort(handle)\n",
    replace: "      else await this.#live.commit(handle)\n",
  },
  {
    name: "count the last batch of a range alone",
    file: "transaction/transaction-result.ts",
    find: "count: last.count + count",
    replace: "count",
  },
  {
    name: "process without storing its progress",
    file: "transaction/batch-settler.ts",
    find: "batch.offsets === undefined ? accepted : this",
    replace: "batch.offsets !== undefined ? accepted : this",
  },
  {
    name: "pass a message that is tried again",
    file: "transaction/message-handling.ts",
    find: "=> this.#limits.get(lane)\n",
    replace: "=> (lane.live ? undefined : this.#limits.get(lane))\n",
  },
  {
    name: "keep what was gathered behind a batch that was aborted",
    file: "transaction/process-loop.ts",
    find: "SettleFailure): Promise<void> {\n    this.#batch = new ProcessBatch()\n",
    replace: "SettleFailure): Promise<void> {\n",
  },
  {
    name: "take an unanswered commit for done",
    file: "transaction/batch-settler.ts",
    find: 'open?.ending === "unknown" && (await this.#isStored(batch))',
    replace: 'open?.ending === "unknown"',
  },
  {
    name: "keep the outputs of a partition that went",
    file: "transaction/process-batch.ts",
    find: "    this.outputs = this.outputs.filter((output) => output.lane !== lane)\n",
    replace: "",
  },
  {
    name: "pass poison without its dead letter",
    file: "transaction/message-handling.ts",
    find: "      batch.outputs.push({ lane, message, record: undefined, to: undefined, burial })\n",
    replace: "      void burial\n",
  },
  {
    name: "forget that an attempt went unanswered",
    file: "transaction/transaction-asking.ts",
    find: "      if (unknown) inDoubt = true\n",
    replace: "",
  },
  {
    name: "process again what was committed without an answer",
    file: "transaction/batch-settler.ts",
    find: 'open?.ending === "unknown" && (await this.#isStored(batch))',
    replace: "false",
  },
  {
    name: "commit while the consumer's own progress is on its way",
    file: "transaction/transaction-control.ts",
    find: "          await offsets.ready()\n",
    replace: "",
  },
  {
    name: "resolve though somebody else has ended the transaction",
    file: "transaction/transactional-producer.ts",
    find: "if (!transaction.isSettled) await",
    replace: 'if (transaction.ending === "open") await',
  },
]
