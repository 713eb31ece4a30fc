import assert from "node:assert/strict"
import { describe, test } from "node:test"
import {
  CancelledError,
  ConnectionError,
  type Headers,
  InvalidError,
  MillraceError,
  NotFoundError,
  RecordTooLargeError,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { FakeBatch } from "../consumer/fake-log.test-support.ts"
import { fakeManifest } from "../consumer/fake-session.test-support.ts"
import { iggyEncryptor } from "../encryption/iggy-encryptor.ts"
import { BatchMessage } from "../record/message.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { deadLetter } from "./dead-letter.ts"
import { deadLetterBlock } from "./dead-letter-record.ts"
import { DeadLetterSender } from "./dead-letter-sender.ts"
import { HandlerRig } from "./handler-rig.test-support.ts"

/** A topic that answers as the test says. */
class FakeTopic {
  readonly stream = "s"
  readonly name = "dead"
  readonly ensured: (number | undefined)[] = []
  readonly sent: OutgoingRecord[] = []
  readonly encryptors: unknown[] = []
  /** What the next sends fail with. */
  readonly failures: Error[] = []
  ensure = async (partitions?: number): Promise<void> => void this.ensured.push(partitions)
  batch = async (records: readonly OutgoingRecord[], options?: { readonly encryptor?: unknown }): Promise<void> => {
    const failure = this.failures.shift()
    if (failure !== undefined) throw failure
    this.sent.push(...records)
    this.encryptors.push(options?.encryptor)
  }
}

/** Of the first that was sent. */
function headersOf(topic: FakeTopic): Headers {
  return (topic.sent[0] as OutgoingRecord).headers as Headers
}

const encryptor = iggyEncryptor({ key: new Uint8Array(32) })
const place = { stream: "s", topic: "t", partition: 0, offset: 4n }
const burial = {
  place,
  message: new BatchMessage(
    { batch: new FakeBatch(4n, [{ payload: Uint8Array.of(1) }]), ...place, lineage: "a", claim: undefined, end: 5n },
    0,
  ),
  content: "message",
  thrown: new Error("no"),
  attempts: 1,
  timeMicros: 1n,
  consumer: "worker",
  group: undefined,
} as const

function sender(topic: FakeTopic, options: Parameters<typeof deadLetter>[1] = {}, own?: typeof encryptor | false) {
  const clock = new VirtualClock()
  const around = { what: "the consumer", clock, random: seededRandom(1), limits: fakeManifest.limits, encryptor: own }
  const made = new DeadLetterSender(deadLetter(topic, options), around)
  const state: { error?: unknown; done: boolean } = { done: false }
  const send = (one: Parameters<DeadLetterSender["send"]>[0] = burial): void => {
    made.send(one).then(
      () => {
        state.done = true
      },
      (error) => {
        state.error = error
      },
    )
  }
  return { clock, made, state, send }
}

describe("sending", () => {
  test("makes the topic once, before the first", async () => {
    const topic = new FakeTopic()
    const { clock, send } = sender(topic, { partitions: 4 })
    send()
    send()
    await clock.advance(0)
    assert.deepEqual(topic.ensured, [4])
    assert.equal(topic.sent.length, 2)
  })

  test("leaves a topic alone that may not be created", async () => {
    const topic = new FakeTopic()
    topic.failures.push(new NotFoundError("no such topic"))
    const { clock, send, state } = sender(topic, { createTopic: false })
    send()
    await clock.advance(100_000)
    assert.deepEqual(topic.ensured, [])
    assert.equal((state.error as MillraceError).kind, "not-found")
    assert.match(
      String(state.error),
      /offset 4 of partition 0 of topic "s\/t" could not be sent to dead-letter topic "s\/dead"/,
    )
  })

  test("makes a topic again that was deleted meanwhile", async () => {
    const topic = new FakeTopic()
    topic.failures.push(new NotFoundError("gone"))
    const { clock, send, state } = sender(topic)
    send()
    await clock.advance(1000)
    assert.deepEqual([topic.ensured.length, state.done], [2, true])
  })

  test("tries again what may pass, five times, and then gives up as it failed", async () => {
    const topic = new FakeTopic()
    for (let n = 0; n < 4; n++) topic.failures.push(new ConnectionError("away"))
    const first = sender(topic)
    first.send()
    await first.clock.advance(60_000)
    assert.equal(first.state.done, true)
    for (let n = 0; n < 9; n++) topic.failures.push(new ConnectionError("away", { outcome: "unknown" }))
    const second = sender(topic)
    second.send()
    await second.clock.advance(60_000)
    const error = second.state.error as MillraceError
    assert.deepEqual(
      [error.kind, error.outcome, topic.failures.length, second.clock.timers],
      ["connection", "unknown", 4, 0],
    )
  })

  test("does not try again what will not pass", async () => {
    const topic = new FakeTopic()
    topic.failures.push(new InvalidError("never"))
    const { clock, send, state } = sender(topic)
    send()
    await clock.advance(0)
    assert.equal((state.error as MillraceError).kind, "invalid")
  })

  test("says less when the record is too large with it, and gives up when nothing is left to leave out", async () => {
    const topic = new FakeTopic()
    const large = (): Error => new RecordTooLargeError("too large")
    topic.failures.push(large(), large())
    const { clock, send, state } = sender(topic)
    send()
    await clock.advance(0)
    assert.equal(headersOf(topic).get("millrace-dead-cut")?.value, true)
    topic.failures.push(large(), large(), large())
    send()
    await clock.advance(0)
    assert.equal((state.error as MillraceError).kind, "record-too-large")
  })

  test("those that come together go out together; when that fails each goes out by itself, and one at fault fails alone", async () => {
    const topic = new FakeTopic()
    const calls: number[] = []
    const batch = topic.batch
    topic.batch = async (records, options) => {
      calls.push(records.length)
      if (records.some((record) => record.payload?.[0] === 3)) throw new InvalidError("this one never")
      await batch(records, options)
    }
    const { clock, made } = sender(topic)
    const outcomes = Array.from({ length: 6 }, (_, n) => {
      const at = { ...place, offset: BigInt(n) }
      const source = new FakeBatch(at.offset, [{ payload: Uint8Array.of(n) }])
      const message = new BatchMessage({ batch: source, ...at, lineage: "a", claim: undefined, end: 9n }, 0)
      return made.send({ ...burial, place: at, message })
    })
    const settled = Promise.allSettled(outcomes)
    await clock.advance(0)
    assert.deepEqual(
      (await settled).map(({ status }) => status === "fulfilled"),
      [true, true, true, false, true, true],
    )
    assert.deepEqual(calls, [6, 1, 1, 1, 1, 1, 1])
    assert.equal(topic.sent.length, 5)
  })

  test("what has not begun to be sent when the run ends is not sent any more", async () => {
    const topic = new FakeTopic()
    const gate = Promise.withResolvers<void>()
    const batch = topic.batch
    topic.batch = async (records, options) => {
      await batch(records, options)
      await gate.promise
    }
    const { clock, made, state, send } = sender(topic)
    send()
    await clock.advance(0)
    const late = made.send(burial).then(
      () => assert.fail("it was sent"),
      (error: unknown) => error,
    )
    made.close()
    gate.resolve()
    await clock.advance(0)
    assert.ok((await late) instanceof CancelledError)
    assert.deepEqual([topic.sent.length, state.done], [1, true])
  })

  test("waits end with the run", async () => {
    const topic = new FakeTopic()
    topic.failures.push(new ConnectionError("away"))
    const { clock, made, send, state } = sender(topic)
    send()
    await clock.advance(1)
    made.close()
    await clock.advance(0)
    assert.ok(state.error instanceof CancelledError)
    assert.equal(clock.timers, 0)
  })
})

describe("encryption", () => {
  const used = async (
    options: Parameters<typeof deadLetter>[1],
    own: typeof encryptor | false | undefined,
    content: "message" | "stored",
  ) => {
    const topic = new FakeTopic()
    const { clock, send } = sender(topic, options, own)
    send({ ...burial, content })
    await clock.advance(0)
    return topic.encryptors[0]
  }

  test("is the consumer's, unless the dead letters have their own; nothing is said where neither has", async () => {
    assert.equal(await used({}, encryptor, "message"), encryptor)
    assert.equal(await used({}, false, "message"), false)
    assert.equal(await used({ encryptor: false }, encryptor, "message"), false)
    assert.equal(await used({}, undefined, "message"), undefined)
  })

  test("is not laid around what did not decrypt", async () => {
    assert.equal(await used({ encryptor }, encryptor, "stored"), false)
  })
})

describe("in a run", () => {
  const dead = (topic: FakeTopic): { rig: HandlerRig; sender: DeadLetterSender } => {
    const onFailure = deadLetter(topic)
    const clock = new VirtualClock()
    const made = new DeadLetterSender(onFailure, {
      what: "the consumer",
      clock,
      random: seededRandom(1),
      limits: fakeManifest.limits,
      encryptor: undefined,
    })
    const rig = new HandlerRig({ onFailure, retry: { attempts: 2, backoffMs: 0 }, around: { deadLetters: made } })
    return { rig, sender: made }
  }

  test("the message counts once its dead letter is confirmed, and not before", async () => {
    const topic = new FakeTopic()
    const { rig } = dead(topic)
    const confirmed = Promise.withResolvers<void>()
    const batch = topic.batch
    topic.batch = async (records, options) => {
      await batch(records, options)
      await confirmed.promise
    }
    rig.feed.put(0, { text: "0", key: "k" }, { text: "1" })
    rig.begin()
    await rig.fail("0", new TypeError("first"))
    await rig.clock.advance(1)
    await rig.fail("0", new TypeError("second"))
    assert.equal(topic.sent.length, 1)
    assert.deepEqual([rig.feed.lanes[0]?.told, rig.texts], [[], []])
    confirmed.resolve()
    await rig.settle()
    assert.deepEqual([rig.feed.lanes[0]?.told, rig.texts], [[0n], ["1"]])
    const block = deadLetterBlock(headersOf(topic))
    assert.deepEqual(
      [block?.attempts, block?.kind, block?.error, block?.consumer],
      [2, "TypeError", "second", "worker"],
    )
  })

  test("a dead letter that cannot be sent stops the run, and the message is not handled", async () => {
    const topic = new FakeTopic()
    topic.failures.push(new InvalidError("never"))
    const { rig } = dead(topic)
    rig.feed.put(0, { text: "0" })
    rig.begin()
    await rig.fail("0", Object.assign(new Error("no"), { retryable: false }))
    await rig.settle()
    assert.ok(rig.outcome?.error instanceof MillraceError)
    assert.match(rig.outcome.error.message, /could not be sent to dead-letter topic/)
    assert.deepEqual(rig.feed.lanes[0]?.told, [])
  })

  test("one whose partition went meanwhile counts for nothing", async () => {
    const topic = new FakeTopic()
    const { rig } = dead(topic)
    const confirmed = Promise.withResolvers<void>()
    topic.batch = async () => await confirmed.promise
    rig.feed.put(0, { text: "0" })
    rig.begin()
    await rig.fail("0", { retryable: false })
    const old = rig.feed.lanes[0]
    rig.feed.lose(0)
    confirmed.reject(new InvalidError("never"))
    await rig.settle()
    assert.deepEqual(old?.told, [])
    assert.equal(rig.outcome, undefined)
  })
})
