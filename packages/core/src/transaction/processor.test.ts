import assert from "node:assert/strict"
import { test } from "node:test"
import {
  CorruptionError,
  DiskFullError,
  FencedError,
  InvalidError,
  MillraceError,
  NotAssignedError,
  StorageError,
  UnsupportedError,
} from "@millrace/contract"
import { Topic } from "../client/topic.ts"
import { deadLetter } from "../handler/dead-letter.ts"
import { deadLetterBlock } from "../handler/dead-letter-record.ts"
import { bytes, failed, run } from "../producer/sending-rig.test-support.ts"
import { transactionalManifest } from "./fake-transactions.test-support.ts"
import { openProcessor } from "./open-processor.ts"
import { checkProcessOptions, type ProcessOptions } from "./process-options.ts"
import { output } from "./process-output.ts"
import { numbers, ProcessingRig, type RigHandler } from "./processing-rig.test-support.ts"
import type { Processor } from "./processor.ts"

const copy: RigHandler = (text) => text

/** Lets the virtual time run until the condition holds. */
async function until(rig: ProcessingRig, what: string, condition: () => boolean): Promise<void> {
  for (let steps = 0; !condition(); steps++) {
    assert.ok(steps < 5000, `never: ${what}`)
    await rig.clock.advance(10)
  }
}

async function begun(rig: ProcessingRig, processor: Processor, ...partitions: number[]): Promise<void> {
  rig.assign(...(partitions.length === 0 ? [0] : partitions))
  await run(rig.clock, processor.ready)
}

test("each message's output is there once, in order, with the group's progress", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 10)
  const processor = rig.process(copy)
  await begun(rig, processor)
  await until(rig, "all is made", () => rig.made.length === 10)
  assert.deepEqual(rig.made, numbers(10))
  assert.equal(rig.input.groupNext("g"), 10n)
  rig.input.put(10, 15)
  await until(rig, "more is made", () => rig.made.length === 15)
  await run(rig.clock, processor.shutdown())
  await processor.done
  assert.equal(rig.input.groupNext("g"), 15n)
  const { messages, outputs, aborted } = processor.statistics
  assert.deepEqual([messages, outputs, aborted], [15, 15, 0])
  assert.equal(rig.input.groups.membership.left, true)
  assert.equal(rig.clock.timers, 0, "no timer is left")
})

test("batches are bounded by batchLength, and no transaction is opened for nothing", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 25)
  const processor = rig.process(copy, { batchLength: 10 })
  await begun(rig, processor)
  await until(rig, "all is made", () => rig.made.length === 25)
  assert.ok(processor.statistics.batches >= 3)
  const begins = rig.asked("begin")
  await rig.clock.advance(60_000)
  assert.equal(rig.asked("begin"), begins)
  await run(rig.clock, processor.shutdown())
})

test("a handler may answer nothing, one output or several, at once or later, and records of other topics", async () => {
  const rig = new ProcessingRig()
  rig.backend.create("other")
  const other = rig.context
  const elsewhere = { stream: "s", name: "other" }
  assert.ok(other)
  rig.input.put(0, 6)
  const answers: Record<string, () => unknown> = {
    "0": () => undefined,
    "1": () => "one",
    "2": () => ["two", "deux"],
    "3": async () => "three",
    "4": () => ({ payload: bytes("four"), key: "k" }),
    "5": () => [output(bytes("five"), { topic: elsewhere, key: "k" }), output(null, { key: "k" })],
  }
  const processor = rig.process((text) => answers[text]?.())
  await begun(rig, processor)
  await until(rig, "all is handled", () => processor.statistics.messages === 6)
  assert.deepEqual(rig.made, ["one", "two", "deux", "three", "four", "null"])
  assert.deepEqual(rig.backend.texts("other"), ["five"])
  assert.equal(rig.input.groupNext("g"), 6n)
  await run(rig.clock, processor.shutdown())
})

test("without a topic to go to, outputs name theirs, and what does not is a failure of its message", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 2)
  const target = rig.out
  const processor = rig.process((text) => (text === "0" ? output(bytes("a"), { topic: target }) : bytes("b")), {
    to: undefined,
  })
  await begun(rig, processor)
  const error = await failed(rig.clock, processor.done)
  assert.equal(error.kind, "handler")
  assert.match(error.message, /has no topic to go to/)
  assert.deepEqual(rig.made, ["a"], "what was handled before is committed")
  assert.equal(rig.input.groupNext("g"), 1n)
})

test("what is no output is a failure of its message, and nothing of that message is stored", async () => {
  for (const wrong of [7, null, { value: "x" }, ["fine", 7]]) {
    const rig = new ProcessingRig()
    rig.input.put(0, 3)
    const processor = rig.process((text) => (text === "1" ? wrong : text), { onFailure: "skip" })
    await begun(rig, processor)
    await until(rig, "all is handled", () => processor.statistics.messages === 3)
    assert.deepEqual(rig.made, ["0", "2"])
    assert.equal(processor.statistics.skipped, 1)
    await run(rig.clock, processor.shutdown())
  }
})

test("stop: what was handled before is committed, the failure is told, and the message comes again", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 10)
  const told: string[] = []
  const reason = new Error("no five")
  const fails: RigHandler = (text) => {
    if (text === "5") throw reason
    return text
  }
  const processor = rig.process(fails, { onError: (error, next) => void told.push(`${next}: ${error.message}`) })
  await begun(rig, processor)
  const error = await failed(rig.clock, processor.done)
  assert.equal(error.kind, "handler")
  assert.equal(error.cause, reason)
  assert.equal(error.context.offset, 5n)
  assert.equal(told.length, 1)
  assert.match(told[0] as string, /^stop: .*offset 5 of partition 0/)
  assert.deepEqual(rig.made, numbers(5))
  assert.equal(rig.input.groupNext("g"), 5n)
  assert.equal(rig.clock.timers, 0)
})

test("retry: the message is tried again with waits, others of its partition wait, and others do not", async () => {
  const rig = new ProcessingRig({ partitions: 2 })
  rig.input.put(0, 3, 0)
  rig.input.put(100, 110, 1)
  const attempts: number[] = []
  const flaky: RigHandler = (text, attempt) => {
    if (text !== "1") return text
    attempts.push(attempt)
    if (attempt < 3) throw new Error("not yet")
    return text
  }
  const processor = rig.process(flaky, { retry: { attempts: 3, backoffMs: 1000 } })
  await begun(rig, processor, 0, 1)
  await until(rig, "the other partition is through", () => rig.input.groupNext("g", 1) === 10n)
  assert.equal(rig.input.groupNext("g", 0), 1n, "the message that waits is not passed")
  await until(rig, "all is made", () => rig.made.length === 13)
  assert.deepEqual(attempts, [1, 2, 3])
  assert.deepEqual(
    rig.made.filter((text) => Number(text) < 100),
    ["0", "1", "2"],
  )
  await run(rig.clock, processor.shutdown())
})

test("dead letters are part of the transaction: there once, whatever is aborted", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 4)
  const fails: RigHandler = (text) => {
    if (text === "2") throw new Error("poison")
    return text
  }
  rig.fates({ commit: [{ outcome: "refuse", error: new DiskFullError("no room") }, {}, { outcome: "lose" }] })
  const processor = rig.process(fails, { onFailure: deadLetter(rig.dead) })
  await begun(rig, processor)
  await until(rig, "all is handled", () => processor.statistics.messages === 4)
  assert.deepEqual(rig.made, ["0", "1", "3"])
  const [letter, ...more] = rig.backend.records("dead")
  assert.equal(more.length, 0)
  const block = deadLetterBlock(letter?.headers as never)
  assert.equal(block?.offset, 2n)
  assert.equal(block?.group, "g")
  assert.equal(block?.error, "poison")
  assert.deepEqual(letter?.payload, bytes("2"))
  await run(rig.clock, processor.shutdown())
})

test("a batch that cannot be read: skipped, or its dead letter with the progress behind it", async () => {
  for (const policy of ["skip", "deadLetter", "stop"] as const) {
    const rig = new ProcessingRig()
    rig.input.put(0, 3)
    rig.input.put(3, 6)
    rig.input.put(6, 9)
    const error = new CorruptionError("bad bytes", { context: { partition: 0, offset: 3n, nextOffset: 6n } })
    rig.input.log.find(rig.input.place())?.damage.push({ offset: 3n, error })
    const processor = rig.process(copy, { onFailure: policy === "deadLetter" ? deadLetter(rig.dead) : policy })
    await begun(rig, processor)
    if (policy === "stop") {
      assert.equal((await failed(rig.clock, processor.done)).kind, "corruption")
      assert.deepEqual(rig.made, ["0", "1", "2"])
      continue
    }
    await until(rig, "it is past it", () => rig.made.length === 6)
    assert.deepEqual(rig.made, ["0", "1", "2", "6", "7", "8"])
    assert.equal(rig.input.groupNext("g"), 9n)
    if (policy === "deadLetter") {
      const letters = rig.backend.records("dead")
      assert.equal(letters.length, 1)
      assert.equal(deadLetterBlock(letters[0]?.headers as never)?.content, "none")
    }
    await run(rig.clock, processor.shutdown())
  }
})

test("a transaction that is aborted is done again, from the messages on", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 10)
  rig.fates({
    commit: [
      { outcome: "refuse", error: new DiskFullError("no room") },
      { outcome: "refuse", error: new DiskFullError("no room") },
    ],
  })
  const processor = rig.process(copy, { retries: 0 })
  await begun(rig, processor)
  await until(rig, "all is made", () => rig.made.length === 10)
  assert.deepEqual(rig.made, numbers(10))
  assert.equal(processor.statistics.aborted, 2)
  assert.equal(rig.aborts.length, 2)
  await run(rig.clock, processor.shutdown())
})

for (const outcome of ["lose", "vanish"] as const) {
  test(`a commit that nobody answers (${outcome}) is looked up, and neither lost nor done twice`, async () => {
    const rig = new ProcessingRig({ retries: 0 })
    rig.input.put(0, 10)
    const processor = rig.process(copy, { batchLength: 4 })
    rig.fates({ commit: [{}, { outcome }] })
    await begun(rig, processor)
    await until(rig, "all is handled", () => rig.input.groupNext("g") === 10n)
    assert.deepEqual(rig.made, numbers(10))
    assert.equal(processor.statistics.messages, 10)
    assert.equal(processor.statistics.aborted, outcome === "lose" ? 0 : 1)
    await run(rig.clock, processor.shutdown())
  })
}

test("a transaction that the backend fenced for its time is done again by a new incarnation", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 5)
  rig.fates({ commit: [{ outcome: "refuse", error: new FencedError("it took too long") }] })
  const processor = rig.process(copy)
  await begun(rig, processor)
  await until(rig, "all is made", () => rig.made.length === 5)
  assert.deepEqual(rig.made, numbers(5))
  await run(rig.clock, processor.shutdown())
})

test("of two processors with one transactional id the older ends, and nothing is doubled", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 5)
  const older = rig.process(copy, { transactionalId: "mine" })
  await begun(rig, older)
  await until(rig, "all is made", () => rig.made.length === 5)
  await run(rig.clock, rig.transactions.init("mine", { timeoutMs: 1000, keepPrepared: false }))
  rig.input.put(5, 8)
  const error = await failed(rig.clock, older.done)
  assert.ok(error instanceof FencedError)
  assert.deepEqual(rig.made, numbers(5))
})

test("a partition that another member has by now is not committed: the batch is aborted, and the rest goes on", async () => {
  const rig = new ProcessingRig({ partitions: 2 })
  rig.input.put(0, 5, 0)
  rig.input.put(100, 105, 1)
  const processor = rig.process(copy)
  const claims = rig.assign(0, 1)
  rig.input.offsets.void.add(claims[0]?.token)
  await run(rig.clock, processor.ready)
  await until(rig, "a batch is aborted", () => rig.aborts.length > 0)
  assert.ok(rig.aborts[0] instanceof NotAssignedError)
  assert.ok(rig.made.every((text) => Number(text) >= 100))
  rig.input.groups.membership.tell({ lost: [claims[0] as never] })
  await until(rig, "the other one is through", () => rig.input.groupNext("g", 1) === 5n)
  assert.deepEqual(rig.made, numbers(5, 100))
  assert.equal(rig.input.groupNext("g", 0), undefined)
  await run(rig.clock, processor.shutdown())
})

test("a partition is handed over only when what was handled of it is committed", async () => {
  const rig = new ProcessingRig({ partitions: 2 })
  rig.input.put(0, 5, 0)
  rig.input.put(100, 105, 1)
  const processor = rig.process(copy)
  rig.fates({ commit: [0, 1].map(() => ({ delayMs: 500 })) })
  const claims = rig.assign(0, 1)
  await run(rig.clock, processor.ready)
  await until(rig, "a commit is under way", () => rig.asked("commit") > 0)
  rig.input.groups.membership.tell({ revoked: [claims[0] as never] })
  await rig.clock.advance(100)
  assert.deepEqual(rig.input.groups.membership.released, [], "not while it is open")
  await until(rig, "it is released", () => rig.input.groups.membership.released.length === 1)
  assert.equal(rig.input.groupNext("g", 0), 5n)
  rig.input.put(105, 107, 1)
  rig.input.put(5, 9, 0)
  await until(rig, "the other goes on", () => rig.input.groupNext("g", 1) === 7n)
  assert.equal(rig.input.groupNext("g", 0), 5n)
  await run(rig.clock, processor.shutdown())
})

test("a message that waits for its next attempt is the next member's when its partition goes", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 1)
  rig.input.put(1, 3)
  const fails: RigHandler = (text) => {
    if (text === "2") throw new Error("not yet")
    return text
  }
  rig.fates({ commit: [{ delayMs: 500 }] })
  const processor = rig.process(fails, {
    batchLength: 1,
    retry: { attempts: 9, backoffMs: 60_000, maxBackoffMs: 60_000 },
  })
  const claims = rig.assign(0)
  await run(rig.clock, processor.ready)
  await until(rig, "a commit is under way", () => rig.asked("commit") > 0)
  await rig.clock.advance(10)
  rig.input.groups.membership.tell({ revoked: [claims[0] as never] })
  await until(rig, "it is released", () => rig.input.groups.membership.released.length === 1)
  assert.equal(rig.input.groupNext("g"), BigInt(rig.made.length))
  assert.ok(rig.made.length < 3)
  await run(rig.clock, processor.shutdown())
})

test("a message whose handler runs while its partition is lost is nobody's output here", async () => {
  const rig = new ProcessingRig({ partitions: 2 })
  rig.input.put(0, 1, 0)
  const gate = Promise.withResolvers<string>()
  let signal: AbortSignal | undefined
  const waits: RigHandler = (text, _attempt, context) => {
    if (text !== "0") return text
    signal = context.signal
    return gate.promise
  }
  const processor = rig.process(waits)
  const claims = rig.assign(0, 1)
  await run(rig.clock, processor.ready)
  await until(rig, "it runs", () => signal !== undefined)
  rig.input.groups.membership.tell({ lost: [claims[0] as never] })
  await rig.clock.advance(10)
  assert.equal(signal?.aborted, true)
  gate.resolve("late")
  rig.input.put(100, 102, 1)
  await until(rig, "the other goes on", () => rig.made.length === 2)
  assert.deepEqual(rig.made, ["100", "101"])
  await run(rig.clock, processor.shutdown())
})

test("what was handled does not wait for a slow handler", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 3)
  const gate = Promise.withResolvers<string>()
  const processor = rig.process((text) => (text === "2" ? gate.promise : text), { maxTransactionMs: 200 })
  await begun(rig, processor)
  await until(rig, "the others are committed", () => rig.made.length === 2)
  assert.equal(rig.input.groupNext("g"), 2n)
  gate.resolve("2")
  await until(rig, "and it too", () => rig.made.length === 3)
  await run(rig.clock, processor.shutdown())
  assert.equal(rig.input.groupNext("g"), 3n)
})

test("a purged topic: what was read of the old history is not stored, and the new one is processed", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 5)
  const processor = rig.process(copy)
  await begun(rig, processor)
  await until(rig, "all is made", () => rig.made.length === 5)
  rig.input.log.purge(rig.input.place(), "b")
  rig.input.put(50, 53)
  await until(rig, "the new history is made", () => rig.made.length === 8)
  assert.deepEqual(rig.made, [...numbers(5), ...numbers(3, 50)])
  await run(rig.clock, processor.shutdown())
})

test("shutdown waits for the handler that runs and commits it; one called by a handler does not wait for itself", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 5)
  let ended: Promise<void> | undefined
  const processor: Processor = rig.process(async (text) => {
    if (text === "2") {
      ended = processor.shutdown()
      await ended
    }
    return text
  })
  await begun(rig, processor)
  await run(rig.clock, processor.done)
  await ended
  assert.deepEqual(rig.made, ["0", "1", "2"])
  assert.equal(rig.input.groupNext("g"), 3n)
  assert.equal(rig.clock.timers, 0)
})

test("a shutdown whose handler never ends fails in time, and stores what was handled before", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 3)
  let signal: AbortSignal | undefined
  const processor = rig.process((text, _attempt, context) => {
    if (text !== "2") return text
    signal = context.signal
    return new Promise(() => {})
  })
  await begun(rig, processor)
  await until(rig, "it runs", () => signal !== undefined)
  const error = await failed(rig.clock, processor.shutdown({ timeoutMs: 500 }))
  assert.equal(error.kind, "timeout")
  assert.match(error.message, /still at work on offset 2 of partition 0/)
  assert.equal(signal?.aborted, true)
  await rig.clock.advance(2000)
  assert.equal(rig.input.groupNext("g") ?? 0n, BigInt(rig.made.length))
  assert.equal(rig.clock.timers, 0)
})

test("no timer is left by a handler that is given up while a batch waits for it", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 3)
  const processor = rig.process((text) => (text === "2" ? new Promise(() => {}) : text))
  processor.done.catch(() => {})
  await begun(rig, processor)
  assert.equal((await failed(rig.clock, processor.shutdown({ timeoutMs: 0 }))).kind, "timeout")
  assert.equal(rig.clock.timers, 0)
})

test("context.stop ends it well, the signal ends it with CancelledError, and what was handled is there", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 5)
  const stops = rig.process((text, _attempt, context) => {
    if (text === "1") context.stop()
    return text
  })
  await begun(rig, stops)
  await run(rig.clock, stops.done)
  assert.deepEqual(rig.made, ["0", "1"])

  const other = new ProcessingRig()
  other.input.put(0, 5)
  const controller = new AbortController()
  const processor = other.process(copy, { signal: controller.signal })
  await begun(other, processor)
  await until(other, "all is made", () => other.made.length === 5)
  controller.abort(new Error("enough"))
  assert.equal((await failed(other.clock, processor.done)).kind, "cancelled")
  assert.equal(other.clock.timers, 0)
})

test("the client's close ends it", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 5)
  const processor = rig.process(copy)
  await begun(rig, processor)
  await until(rig, "all is made", () => rig.made.length === 5)
  await run(rig.clock, rig.context.close(1000))
  await processor.done
  assert.equal(rig.clock.timers, 0)
})

test("a handler that awaits the client's close does not hang: what came before is stored, and its message comes again", async () => {
  for (const pauses of [false, true]) {
    const rig = new ProcessingRig()
    rig.input.put(0, 6)
    const fate = { delayMs: 100 }
    rig.fates({ commit: [fate, fate, fate] })
    const startedMs = rig.clock.monotonicMs()
    const answered = Promise.withResolvers<void>()
    const processor = rig.process(async (text) => {
      if (pauses) await Promise.resolve()
      if (text === "2") await rig.context.close(30_000).then(answered.resolve, answered.reject)
      return text
    })
    await begun(rig, processor)
    await run(rig.clock, answered.promise)
    await run(rig.clock, processor.done)
    assert.ok(rig.clock.monotonicMs() - startedMs < 5000)
    assert.deepEqual(rig.made, ["0", "1"])
    assert.equal(rig.input.groupNext("g"), 2n)
    assert.equal(rig.clock.timers, 0)
  }
})

test("a handler that closes the client and does not wait for it is done, and stored", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 6)
  let closed: Promise<void> | undefined
  const processor = rig.process((text) => {
    if (text === "2") closed = rig.context.close(30_000)
    return text
  })
  await begun(rig, processor)
  await run(rig.clock, processor.done)
  await run(rig.clock, closed as Promise<void>)
  assert.deepEqual(rig.made, ["0", "1", "2"])
  assert.equal(rig.input.groupNext("g"), 3n)
  assert.equal(rig.clock.timers, 0)
})

test("one that is shut down before it has begun ends at once", async () => {
  const rig = new ProcessingRig()
  rig.fates({ init: Array.from({ length: 50 }, () => ({ outcome: "refuse" as const })) })
  const processor = rig.process(copy)
  await rig.clock.advance(100)
  await run(rig.clock, processor.shutdown())
  await processor.done
  assert.equal((await failed(rig.clock, processor.ready)).kind, "closed")
  assert.equal(rig.clock.timers, 0)
})

test("one that is shut down while it waits for its first assignment ends at once, and leaves the group", async () => {
  const rig = new ProcessingRig()
  const processor = rig.process(copy)
  await until(rig, "it has joined", () => rig.input.groups.joins.length === 1)
  await run(rig.clock, processor.shutdown())
  await processor.done
  rig.assign(0)
  await until(rig, "the group is left", () => rig.input.groups.membership.left)
})

test("a message that waits for its next attempt does not hold up a shutdown", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 3)
  const fails: RigHandler = (text) => {
    if (text === "1") throw new Error("not yet")
    return text
  }
  rig.fates({ commit: [{ delayMs: 500 }] })
  const processor = rig.process(fails, { retry: { attempts: 9, backoffMs: 10 }, maxTransactionMs: 5 })
  await begun(rig, processor)
  await until(rig, "a commit is under way", () => rig.asked("commit") > 0)
  await run(rig.clock, processor.shutdown())
  assert.deepEqual(rig.made, ["0"])
  assert.equal(rig.clock.timers, 0)
})

test("what no other try mends ends it with the reason", async () => {
  for (const [operation, error] of [
    ["commit", new StorageError("the disk is gone")],
    ["append", new MillraceError("permission", "you may not write there")],
    ["begin", new StorageError("the disk is gone")],
  ] as const) {
    const rig = new ProcessingRig()
    rig.input.put(0, 3)
    const processor = rig.process(copy)
    rig.fates({ [operation]: Array.from({ length: 50 }, () => ({ outcome: "refuse" as const, error })) })
    await begun(rig, processor)
    assert.equal((await failed(rig.clock, processor.done)).kind, error.kind)
    assert.deepEqual(rig.made, [])
    assert.equal(rig.clock.timers, 0)
  }
})

test("trouble that lasts ends it within bounds", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 3)
  const processor = rig.process(copy)
  rig.transactions.fate = (operation) =>
    operation === "commit" ? { outcome: "refuse", error: new DiskFullError("no room") } : {}
  await begun(rig, processor)
  const error = await failed(rig.clock, processor.done)
  assert.equal(error.kind, "disk-full")
  assert.ok(processor.statistics.aborted > 10 && processor.statistics.aborted < 50)
})

test("a record that the backend cannot take is a failure of its message", async () => {
  const rig = new ProcessingRig()
  rig.backend.longestWritableBytes = 3
  rig.input.put(0, 4)
  const processor = rig.process((text) => (text === "2" ? "too long" : text === "15" ? "abc" : text), {
    onFailure: "skip",
  })
  await begun(rig, processor)
  await until(rig, "all is handled", () => rig.input.groupNext("g") === 4n)
  assert.deepEqual(rig.made, ["0", "1", "3"])
  assert.equal(processor.statistics.skipped, 1)
  rig.input.put(10, 20)
  rig.backend.largestPayloadBytes = 2
  await until(rig, "what fails as it is staged is passed over too", () => rig.input.groupNext("g") === 14n)
  assert.deepEqual(rig.made, ["0", "1", "3", ...numbers(10, 10).filter((text) => text !== "15")])
  assert.equal(processor.statistics.skipped, 2)
  await run(rig.clock, processor.shutdown())
})

test("the message whose output the backend does not take is found among many without a wait", async () => {
  const rig = new ProcessingRig()
  rig.backend.largestPayloadBytes = 3
  rig.input.put(0, 500)
  const processor = rig.process((text) => (text === "3" ? "too long" : text), { onFailure: "skip" })
  const startedMs = rig.clock.monotonicMs()
  await begun(rig, processor)
  await until(rig, "all is handled", () => rig.input.groupNext("g") === 500n)
  assert.ok(rig.clock.monotonicMs() - startedMs < 400, `${rig.clock.monotonicMs() - startedMs} ms`)
  assert.deepEqual(rig.made, [...numbers(3), ...numbers(496, 4)])
  assert.equal(processor.statistics.skipped, 1)
  await run(rig.clock, processor.shutdown())
})

test("a listener or onError that throws ends it", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 3)
  const reason = new Error("onError is broken")
  const processor = rig.process(
    () => {
      throw new Error("no")
    },
    {
      onFailure: "skip",
      onError: () => {
        throw reason
      },
    },
  )
  await begun(rig, processor)
  const ended = processor.done.then(
    () => undefined,
    (error: unknown) => error,
  )
  assert.equal(await run(rig.clock, ended), reason)
})

test("options are checked before anything is asked", () => {
  const rig = new ProcessingRig()
  const good = { from: { topic: rig.source, group: "g" }, to: rig.out, handler: () => undefined }
  const open = (own: object): Processor => openProcessor(rig.context, { ...good, ...own } as never)
  assert.throws(() => open({ from: undefined }), /"from" is missing/)
  assert.throws(() => open({ from: { topic: "t", group: "g" } }), /from.topic/)
  assert.throws(() => open({ from: { topic: rig.source, group: "" } }), InvalidError)
  assert.throws(
    () => open({ from: { topic: rig.source, group: "g", commitPolicy: { kind: "each" } } }),
    /unknown option "commitPolicy"/,
  )
  assert.throws(() => open({ handler: 7 }), /"handler"/)
  assert.throws(() => open({ batchLength: 0 }), /batchLength/)
  assert.throws(() => open({ onFailure: "ignore" }), /onFailure/)
  assert.throws(() => open({ to: "out" }), /"to"/)
  assert.throws(() => open({ concurrency: 3 }), /unknown option "concurrency"/)
  assert.equal(rig.asked("init"), 0)
})

test("members of the same name have transactional ids of their own in each topic and group", () => {
  const rig = new ProcessingRig()
  const idOf = (topic: string, group: string, memberId: string): string => {
    const from = { topic: new Topic(rig.context, { stream: "s", topic }), group, memberId }
    const options = { from, to: rig.out, handler: () => undefined } as ProcessOptions<Topic, Topic>
    return checkProcessOptions(rig.context, options as unknown as ProcessOptions).producer.transactionalId
  }
  const id = idOf("t", "g", "m")
  assert.equal(idOf("t", "g", "m"), id, "a restart takes over")
  const others = [idOf("out", "g", "m"), idOf("t", "h", "m"), idOf("t", "g", "n"), idOf("t", "g/m", "m")]
  assert.equal(new Set([id, ...others, idOf("t", "g", "m/m")]).size, 6)
})

test("what the backend lacks is refused before anything is asked", () => {
  const rig = new ProcessingRig()
  const absent = { supported: false, reason: "it cannot", instead: "Do without" } as const
  const { transactions } = transactionalManifest
  assert.ok(transactions.supported)
  for (const manifest of [
    { ...transactionalManifest, transactions: absent },
    { ...transactionalManifest, transactions: { ...transactions, offsets: absent } },
  ]) {
    const context = { ...rig.client, session: rig.transactions.session(manifest) }
    const options = { from: { topic: rig.source, group: "g" }, to: rig.out, handler: () => undefined }
    assert.throws(
      () => openProcessor(context, options),
      (error) => error instanceof UnsupportedError && /it cannot/.test(error.message),
    )
  }
})

test("a partition is handed over when the handler that was at work on it fails, and nothing else is in the batch", async () => {
  const rig = new ProcessingRig({ partitions: 2 })
  rig.input.put(0, 1, 0)
  const gate = Promise.withResolvers<string>()
  const handler: RigHandler = (text) => (text === "0" ? gate.promise : text)
  const processor = rig.process(handler, { retry: { attempts: 5, backoffMs: 100 } })
  const claims = rig.assign(0, 1)
  await run(rig.clock, processor.ready)
  await rig.clock.advance(10)
  rig.input.groups.membership.tell({ revoked: [claims[0] as never] })
  await rig.clock.advance(10)
  assert.equal(rig.input.groups.membership.released.length, 0, "not while it runs")
  gate.reject(new Error("not now"))
  await rig.clock.advance(50)
  assert.equal(rig.input.groups.membership.released.length, 1)
  assert.equal(rig.input.groupNext("g", 0), undefined)
  await run(rig.clock, processor.shutdown())
})

test("a dead letter that cannot be stored ends the processor with the reason, and nothing goes round in circles", async () => {
  const rig = new ProcessingRig()
  rig.input.put(10, 13)
  const handled: string[] = []
  const fails: RigHandler = (text) => {
    handled.push(text)
    if (text === "11") throw new Error("poison")
    return "x"
  }
  rig.backend.longestWritableBytes = 1
  const processor = rig.process(fails, { onFailure: deadLetter(rig.dead) })
  await begun(rig, processor)
  const error = await failed(rig.clock, processor.done)
  assert.equal(error.kind, "record-too-large")
  assert.ok(handled.length < 20, `${handled.length} attempts`)
  assert.equal(rig.clock.timers, 0)
})

test("what was skipped and buried is counted when it is committed, once, whatever is aborted", async () => {
  for (const policy of ["skip", "deadLetter"] as const) {
    const rig = new ProcessingRig()
    rig.input.put(0, 4)
    const fails: RigHandler = (text) => {
      if (text === "2") throw new Error("poison")
      return text
    }
    rig.fates({ commit: [1, 2].map(() => ({ outcome: "refuse", error: new NotAssignedError("not now") })) })
    const processor = rig.process(fails, { onFailure: policy === "skip" ? "skip" : deadLetter(rig.dead) })
    await begun(rig, processor)
    await until(rig, "all is handled", () => processor.statistics.messages === 4)
    const { skipped, deadLetters, aborted } = processor.statistics
    assert.deepEqual([skipped, deadLetters], policy === "skip" ? [1, 0] : [0, 1])
    assert.equal(aborted, 2)
    await run(rig.clock, processor.shutdown())
  }
})

test("what was handled does not wait for a slow handler, also when its time is over while the batch before is on its way", async () => {
  const rig = new ProcessingRig()
  rig.input.put(0, 1)
  const gate = Promise.withResolvers<string>()
  const handler: RigHandler = (text) => (text === "3" ? gate.promise : text)
  rig.fates({ commit: [{ delayMs: 900 }] })
  const processor = rig.process(handler, { maxTransactionMs: 300 })
  await begun(rig, processor)
  await until(rig, "a commit is under way", () => rig.asked("commit") === 1)
  rig.input.put(1, 4)
  await until(rig, "what comes before it is there", () => rig.made.length === 3)
  assert.equal(rig.input.groupNext("g"), 3n)
  gate.resolve("3")
  await until(rig, "all is made", () => rig.made.length === 4)
  await run(rig.clock, processor.shutdown())
})

test("a partition to be handed over does not wait for a handler that is at work on another", async () => {
  const rig = new ProcessingRig({ partitions: 2 })
  rig.input.put(0, 2, 0)
  const gate = Promise.withResolvers<string>()
  const handler: RigHandler = (text) => (text === "100" ? gate.promise : text)
  const processor = rig.process(handler, { maxTransactionMs: 100_000, batchLength: 10 })
  rig.fates({ commit: [{ delayMs: 100 }] })
  const claims = rig.assign(0, 1)
  await run(rig.clock, processor.ready)
  await until(rig, "a commit is under way", () => rig.asked("commit") === 1)
  rig.input.put(2, 4, 0)
  await rig.clock.advance(10)
  rig.input.put(100, 101, 1)
  await rig.clock.advance(10)
  rig.input.groups.membership.tell({ revoked: [claims[0] as never] })
  await rig.clock.advance(5000)
  assert.equal(rig.input.groups.membership.released.length, 1)
  assert.equal(rig.input.groupNext("g", 0), 4n)
  gate.resolve("100")
  await until(rig, "the slow one is there too", () => rig.made.includes("100"))
  await run(rig.clock, processor.shutdown())
})
