import type { Mutant } from "./mutant.ts"

/** The ways in which reading is broken to see that a seed notices. */
export const consumerMutants: readonly Mutant[] = [
  {
    name: "commit a message before it is handled",
    file: "consumer/in-hand.ts",
    find: 'handled === "everything" ? next : offset',
    replace: "next",
  },
  {
    name: "store what was handled after the partition went",
    file: "progress/consumer-progress.ts",
    find: '    if (!this.tell({ type: "released", key: lane })) {\n',
    replace:
      '    queueMicrotask(() => setImmediate(() => this.tell({ type: "released", key: lane })))\n    if (!lane.live) {\n',
  },
  {
    name: "forget the store at shutdown",
    file: "progress/consumer-progress.ts",
    find: '    this.tell({ type: "shutdown" })\n',
    replace: "",
  },
  {
    name: "skip an unhandled message between two that are handled",
    file: "partition/handled-ranges.ts",
    find: "    if (start <= this.#prefix) {\n",
    replace: "    if (start <= this.#prefix + 1n) {\n",
  },
  {
    name: "start an assigned partition at 0",
    file: "partition/start-position.ts",
    find: "  return { offset: position.offset, lineage",
    replace: "  return { offset: 0n, lineage",
  },
  {
    name: "acknowledge on timeout",
    file: "consumer/message-iterator.ts",
    find: "  if (value !== undefined) return Promise.resolve(value)\n  if (taker.handOver.ended) return Promise.reject",
    replace:
      "  if (value !== undefined && timeoutMs === 0) return Promise.reject(new TimeoutError('late'))\n  if (value !== undefined) return Promise.resolve(value)\n  if (taker.handOver.ended) return Promise.reject",
  },
  {
    name: "hand out what is about to go",
    file: "consumer/reading-consumer.ts",
    find: "    this.runner.stop(lanes)\n    for (const lane of lanes) this.handOver.drop(lane, { open: false })\n",
    replace: '    for (const lane of lanes) lane.machine.handle({ type: "close" })\n',
  },
  {
    name: "believe a stale answer after a seek",
    file: "partition/partition-reader.machine.ts",
    find: "    this.#doubtful = polling\n",
    replace: "    this.#doubtful = false\n",
  },
  {
    name: "go on behind an answer that is not of the position",
    file: "partition/partition-reader.machine.ts",
    find: '      if (!covers(event.batches, this.#offset)) return this.#go("reading", false)\n',
    replace: "",
  },
  {
    name: "keep what was read ahead of another history",
    file: "partition/partition-reader.machine.ts",
    find: '    return [{ type: "drop" }, { type: "sourceChanged", offset }, ',
    replace: '    return [{ type: "sourceChanged", offset }, ',
  },
  {
    name: "count what is open before a handled message as handled",
    file: "consumer/in-hand.ts",
    find: "lane.ranges.add(offset, offset + 1n))\n",
    replace: "lane.ranges.through(offset + 1n))\n",
  },
  {
    name: "never wake a partition that waits",
    file: "partition/lane-commands.ts",
    find: "          this.#wakeAt(lane, command.atMs)\n",
    replace: "          if (command.atMs < 0) this.#wakeAt(lane, command.atMs)\n",
  },
  {
    name: "store backwards",
    file: "progress/commit-policy.machine.ts",
    find: "    if (known !== undefined && next <= known) return nothing\n",
    replace:
      "    if (known !== undefined && next < known) return nothing\n    if (known !== undefined) next = next - 1n\n",
  },
  {
    name: "lose what was read ahead on a pause",
    file: "partition/lane-runner.ts",
    find: "      lane.paused = true\n      this.#host.withheld(lane)\n",
    replace:
      "      lane.paused = true\n      this.#host.withheld(lane)\n      for (const slice of lane.clear()) this.gaveBack(slice)\n",
  },
  {
    name: "hand out what is paused",
    file: "partition/lane-queue.ts",
    find: "lane.draining || lane.paused || lane.seeking",
    replace: "lane.draining || lane.seeking",
  },
  {
    name: "mark before the handler settles",
    file: "handler/handler-run.ts",
    find: '    if (task.phase !== "running") {\n      this.#finish(task)\n      return\n    }\n    const { retry } = this.#settings\n',
    replace:
      '    if (task.phase !== "running") {\n      this.#finish(task)\n      return\n    }\n    this.#feed?.handled(backlogOf(task).lane, task.offset)\n    const { retry } = this.#settings\n',
  },
  {
    name: "forget the rest of an answer",
    file: "partition/partition-reader.machine.ts",
    find: "      position = batch.lastOffset + 1n\n",
    replace: "      position = batch.lastOffset + 1n\n      if (commands.length > 0) continue\n",
  },
  {
    name: "wait in silence when a store finds another history",
    file: "progress/read-gate.machine.ts",
    find: '    if (error.kind === "history-changed") return [...this.#wait(atMs), { type: "look" }]\n',
    replace: '    if (error.kind === "history-changed") return nothing\n',
  },
]
