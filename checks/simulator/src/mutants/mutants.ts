import { consumerMutants } from "./consumer-mutants.ts"
import type { Mutant } from "./mutant.ts"
import { queueMutants } from "./queue-mutants.ts"
import { schemaMutants } from "./schema-mutants.ts"
import { transactionMutants } from "./transaction-mutants.ts"

/** The ways in which the core is broken to see that a seed notices. Each breaks one promise, as a plausible mistake would. */
export const mutants: readonly Mutant[] = [
  {
    name: "resend what may be stored, past the window",
    file: "producer/sender.machine.ts",
    find: '    if (onUnknown === "fail") return false\n',
    replace: '    if (onUnknown === "fail") return true\n    return true\n',
  },
  {
    name: "resend what may be stored under a new number",
    file: "producer/sender.machine.ts",
    find: '      if (verdict === "rest") restMs =',
    replace: '      if (verdict === "rest") entry.sequence = -1\n      if (verdict === "rest") restMs =',
  },
  {
    name: "new ids for every attempt",
    file: "producer/pending-batch.ts",
    find: "    this.#sealed ??= (this.#writer as BatchWriter).seal(this.stamp)\n",
    replace:
      "    if (this.#sealed !== undefined) { const again = this.#sealed as any; const fresh = this.#stamp(this.resend).id; for (const r of again.content) r.id = fresh + (r.id & 0xfffffn) }\n    this.#sealed ??= (this.#writer as BatchWriter).seal(this.stamp)\n",
  },
  {
    name: "swap two batches on a resend",
    file: "producer/sender.machine.ts",
    find: "    this.#closeGap(gap)\n    this.#restUntilMs = nowMs + restMs\n",
    replace:
      "    this.#closeGap(gap)\n    if (this.#queue.length > 1) this.#queue.splice(0, 2, this.#queue[1] as Entry<B>, this.#queue[0] as Entry<B>)\n    this.#restUntilMs = nowMs + restMs\n",
  },
  {
    name: "confirm before the append",
    file: "producer/sender.ts",
    find: '    answer.then(\n      (result) => this.#run({ kind: "appended"',
    replace:
      '    queueMicrotask(() => this.#run({ kind: "appended", entry, result: { contiguous: false, duplicates: 0 }, nowMs: this.#nowMs() }))\n    answer.then(\n      (result) => this.#run({ kind: "appended"',
  },
  {
    name: "an unknown outcome becomes rejected",
    file: "producer/sender-entry.ts",
    find: "  return entry.unknown || entry.wasDoubtful ? doubted(error) : error\n",
    replace: "  return error\n",
  },
  {
    name: "what was in flight at the end is told as rejected",
    file: "producer/sender.machine.ts",
    find: '    for (const entry of this.#queue) if (entry.state === "inFlight") entry.unknown = true\n',
    replace: "",
  },
  {
    name: "use the sequence of an unknown batch again",
    file: "producer/sender.machine.ts",
    find: "    if (gap.uncertain || gap.behind.some((entry) => entry.unknown)) this.#epochSpent = true\n",
    replace: "",
  },
  {
    name: "more in flight than the backend takes",
    file: "producer/sender.machine.ts",
    find: "      if (this.#inFlight >= this.#settings.maxInFlight) break\n",
    replace: "      if (this.#inFlight > this.#settings.maxInFlight) break\n",
  },
  {
    name: "lose the last record of a batch at a split",
    file: "producer/pending-batch.ts",
    find: "      if (end > cut) second.#join(call, Math.max(0, start - cut), index + Math.max(0, cut - start))\n",
    replace:
      "      if (end > cut + 1) second.#join(call, Math.max(0, start - cut), index + Math.max(0, cut - start))\n",
  },
  {
    name: "keep the buffers of failed batches",
    file: "producer/pending-batch.ts",
    find: "    this.#calls = []\n    this.#sealed?.release()\n",
    replace: "    this.#calls = []\n    if (this.#isFull) this.#sealed?.release()\n",
  },
  {
    name: "send the chunk behind one that failed",
    file: "producer/chunk.ts",
    find: '    if (before.#hasFailed) return "dropped"\n',
    replace: "",
  },
  {
    name: "settle a call with its first part",
    file: "producer/send-call.ts",
    find: "    if (this.#openParts > 0 || !this.#isTaken || this.#isSettled) return\n",
    replace: "    if (!this.#isTaken || this.#isSettled) return\n",
  },
  {
    name: "forget who waits when the topic is another one",
    file: "producer/topic-publisher.ts",
    find: "      else call.admit(accumulator)\n",
    replace: "      else if (error === undefined || call.highestPartition < 0) call.admit(accumulator)\n",
  },
  {
    name: "drop a failure that onError did not take",
    file: "producer/failure-desk.ts",
    find: "        this.#kept.push(failure)\n        this.#troubles.push(thrown)\n",
    replace: "        this.#troubles.push(thrown)\n",
  },
  {
    name: "drop the failures that nobody takes",
    file: "producer/failure-desk.ts",
    find: "      this.#kept.push(failure)\n      return\n",
    replace: "      return\n",
  },
  {
    name: "never give room back",
    file: "producer/buffer-budget.ts",
    find: "    this.#usedBytes -= bytes\n",
    replace: "",
  },
  {
    name: "give room back twice",
    file: "producer/buffer-budget.ts",
    find: "    this.#usedBytes -= bytes\n",
    replace: "    this.#usedBytes -= 2 * bytes\n",
  },
  {
    name: "flush without what lingers",
    file: "producer/background-producer.ts",
    find: "    await Promise.all(this.#publishers.map((publisher) => publisher.flush()))\n",
    replace: "",
  },
  {
    name: "let a send pass those that wait for room",
    file: "producer/buffer-budget.ts",
    find: "    if (this.#waiting > 0 || !this.#fits(bytes)) return false\n",
    replace: "    if (!this.#fits(bytes)) return false\n",
  },
  {
    name: "journal what goes out after it went",
    file: "producer/sender.ts",
    find: "    if (written === undefined) this.#dispatch(entry, attempt, identity)\n",
    replace:
      "    written?.catch(() => {})\n    if (written === undefined || written !== undefined) this.#dispatch(entry, attempt, identity)\n",
  },
  {
    name: "take what was read for delivered",
    file: "spool/lane-progress.ts",
    find: "remaining: Number(end - this.readEnd) - done }",
    replace: "remaining: 0 }",
  },
  {
    name: "forget what somebody else has",
    file: "spool/lane.ts",
    find: '    journal.note({ kind: "dispatch", dispatch, settled: true })\n',
    replace: "",
  },
  {
    name: "listen to what nobody will tell",
    file: "spool/lane.ts",
    find: "    if (this.#silence !== undefined) listener.failed(undefined, this.#silence)\n",
    replace: "    if (this.#silence === null) listener.failed(undefined, this.#silence as never)\n",
  },
  {
    name: "give room on the disk back twice",
    file: "spool/lane.ts",
    find: "this.#context.onFreed(freed)\n",
    replace: "this.#context.onFreed(2 * freed)\n",
  },
  {
    name: "put nothing aside",
    file: "spool/refusals.ts",
    find: "    if (writer.count > 0 && !(await this.#append(writer))) return\n",
    replace: "",
  },
  {
    name: "send what was on its way as new after a restart",
    file: "spool/recovery.ts",
    find: '      if (reason === "restored") continue\n',
    replace: '      if (reason === "restored") { this.#forward(present(course)); continue }\n',
  },
  {
    name: "do not count what may be doubled after a restart",
    file: "spool/recovery.ts",
    find: "      this.#context.onDoubt(records.length)\n",
    replace: "",
  },
  {
    name: "take a topic that could not be described for another one",
    file: "spool/recovery.ts",
    find: '      return error instanceof MillraceError && error.kind === "not-found"\n',
    replace: "      return true\n",
  },
  ...consumerMutants,
  ...queueMutants,
  ...transactionMutants,
  ...schemaMutants,
]
