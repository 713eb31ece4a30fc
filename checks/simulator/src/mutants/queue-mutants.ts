import type { Mutant } from "./mutant.ts"

/** The ways in which work queues are broken to see that a seed notices. */
export const queueMutants: readonly Mutant[] = [
  {
    name: "ack a message before its handler is done",
    file: "queue/message-handling.ts",
    find: "    message.attempt = attempt\n",
    replace:
      "    message.attempt = attempt\n    if (message.verdict === undefined) {\n      this.acknowledge(message)\n      message.verdict = undefined\n    }\n",
  },
  {
    name: "ack a message whose handler has failed",
    file: "queue/message-handling.ts",
    find: 'verdict: "nak", delayMs }, sink',
    replace: 'verdict: "ack" }, sink',
  },
  {
    name: "hand out what has run out of its wait",
    file: "queue/queue-buffer.machine.ts",
    find: "    return !message.lost && nowMs",
    replace: "    return !message.lost || nowMs",
  },
  {
    name: "never extend the wait of what a handler has",
    file: "queue/queue-buffer.machine.ts",
    find: "    if (nowMs - message.cameMs < mostMs) outcome.extend.push(message)\n",
    replace: "    if (nowMs - message.cameMs < mostMs) outcome.extend.push()\n",
  },
  {
    name: "bury without a dead letter",
    file: "queue/queue-burial.ts",
    find: "      if (this.#sender !== undefined) await this.#store(this.#sender, message, ending)\n",
    replace: "",
  },
  {
    name: "hand out what has no delivery left",
    file: "queue/queue-intake.ts",
    find: "message.deliveries <= maxDeliver",
    replace: "message.deliveries <= maxDeliver + 1",
  },
  {
    name: "bury what has a delivery left",
    file: "queue/queue-burial.ts",
    find: "message.deliveries >= maxDeliver",
    replace: "message.deliveries + 1 >= maxDeliver",
  },
  {
    name: "keep at shutdown what nobody took",
    file: "queue/queue-intake.ts",
    find: "    this.#giveBack(this.buffer.drain())\n    this.#pump.end()\n",
    replace: "    this.buffer.drain()\n    this.#pump.end()\n",
  },
  {
    name: "say that it counts whatever the queue says",
    file: "queue/settlement-desk.ts",
    find: "sink.settled(outcome, askedMs)",
    replace: "sink.settled(true, askedMs)",
  },
  {
    name: "take a settlement that failed for one that counts",
    file: "queue/settlement-desk.ts",
    find: "tries >= mostTries) return failAll(request, error)",
    replace: "tries >= mostTries) return tell(request, request.sinks.map(() => true), askedMs)",
  },
  {
    name: "tell one message of another's settlement",
    file: "queue/settlement-desk.ts",
    find: "    lane.settlements.push(settlement)\n",
    replace: "    lane.settlements.unshift(settlement)\n",
  },
  {
    name: "run a handler more than was told",
    file: "queue/queue-run.ts",
    find: "Array.from({ length: settings.concurrency }",
    replace: "Array.from({ length: settings.concurrency + 1 }",
  },
  {
    name: "never pull again behind a failure",
    file: "queue/queue-pump.ts",
    find: "      this.#pause = undefined\n",
    replace: "",
  },
  {
    name: "leave the look at the waits behind",
    file: "queue/queue-intake.ts",
    find: "    this.#look?.cancel()\n",
    replace: "",
  },
]
