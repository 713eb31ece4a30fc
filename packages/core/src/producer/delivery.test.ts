/**
 * What a producer promises while requests are delayed, refused, lost on the way or on the way back, while it is fenced and while its
 * topic is replaced: random histories over a backend in memory. A failing history is printed by its seed and replays exactly.
 */
import assert from "node:assert/strict"
import { test } from "node:test"
import { ConnectionError, DiskFullError, MillraceError } from "@millrace/contract"
import { type Random, seededRandom, VirtualClock } from "@millrace/runtime"
import fc from "fast-check"
import { type Client, openClient } from "../client/client.ts"
import { FakeBackend, type Fate, fakeManifest } from "./fake-backend.test-support.ts"
import type { Producer } from "./producer.ts"
import type { ProducerOptions } from "./producer-options.ts"
import { PublishFailedError } from "./publish-failed.ts"

interface History {
  readonly seed: number
  readonly partitions: number
  /** In percent: how many requests do not go well. */
  readonly trouble: number
  readonly options: ProducerOptions
  readonly dedup: "sequence" | "idWindow" | "none"
  readonly fences: boolean
  readonly replaces: boolean
}

const histories: fc.Arbitrary<History> = fc.record({
  seed: fc.integer({ min: 0, max: 0x7fff_ffff }),
  partitions: fc.integer({ min: 1, max: 3 }),
  trouble: fc.constantFrom(0, 10, 40, 70),
  options: fc.record({
    batchLength: fc.constantFrom(1, 3, 10),
    retries: fc.constantFrom(0, 2, 30),
    retryBackoffMs: fc.constantFrom(1, 50),
    onUnknown: fc.constantFrom("resend", "fail"),
  }),
  dedup: fc.constantFrom("sequence", "sequence", "sequence", "idWindow", "none"),
  fences: fc.boolean(),
  replaces: fc.constantFrom(false, false, false, true),
})

interface Call {
  readonly texts: readonly string[]
  readonly partition: number | undefined
  outcome?: Outcome
}

type Outcome =
  | { readonly kind: "confirmed"; readonly places: readonly (readonly [partition: number, offset: number])[] }
  | { readonly kind: "failed"; readonly error: MillraceError }

const settledWithinMs = 3_600_000

test("every send settles; what is confirmed is stored, in order; what is rejected is not; nothing is stored twice", async () => {
  await fc.assert(
    fc.asyncProperty(histories, async (history) => {
      const world = new World(history)
      const calls = await world.play()
      for (const call of calls) assert.ok(call.outcome !== undefined, `${call.texts[0]} never settled`)
      if (history.replaces) world.checkOrder()
      else world.check(calls)
      if (world.mustDeliver)
        for (const call of calls) assert.equal(call.outcome?.kind, "confirmed", describeFailure(call))
      await world.checkEnd()
    }),
    { numRuns: Number(process.env.MILLRACE_LONG === "1" ? 5000 : 200), endOnFailure: false },
  )
})

class World {
  readonly history: History
  readonly random: Random
  readonly clock = new VirtualClock()
  readonly backend: FakeBackend
  readonly client: Client
  readonly producer: Producer
  quiet = false

  constructor(history: History) {
    this.history = history
    this.random = seededRandom(history.seed)
    const sequenced = history.dedup === "sequence"
    const manifest = fakeManifest({
      dedup: history.dedup,
      identityScope: sequenced ? "producer" : "none",
      inFlight: sequenced ? { offsets: 5, stored: 5 } : { offsets: 1, stored: 1 },
    })
    this.backend = new FakeBackend(this.clock, manifest)
    this.backend.fencesEverywhere = history.seed % 2 === 0
    this.backend.recognisesIds = history.dedup === "idWindow"
    this.backend.create("t", history.partitions)
    this.backend.fate = () => (this.quiet ? {} : this.fate())
    this.backend.failIdentify = () =>
      this.chance(5) && !this.quiet ? new ConnectionError("no identity now") : undefined
    const options = { publishTimeoutMs: 1000, publishRetries: 10, publishRetryBackoffMs: 5 }
    this.client = openClient(this.backend.session, options, { clock: this.clock, random: this.random })
    this.producer = this.client.stream("s").topic("t").producer(history.options)
  }

  /** Enough patience for every trouble: then no send may fail. */
  get mustDeliver(): boolean {
    const { options, dedup, fences, replaces, trouble } = this.history
    const patient = options.retries === 30 && options.onUnknown === "resend" && trouble <= 40
    return patient && dedup === "sequence" && !fences && !replaces
  }

  async play(): Promise<Call[]> {
    const calls: Call[] = []
    const settled: Promise<void>[] = []
    let next = 0
    const rounds = 5 + this.below(40)
    for (let round = 0; round < rounds; round++) {
      const count = this.chance(70) ? 1 : 1 + this.below(25)
      const texts = Array.from({ length: count }, () => `r${next++}`)
      const call: Call = { texts, partition: this.chance(60) ? this.below(this.history.partitions) : undefined }
      calls.push(call)
      settled.push(this.send(call))
      if (this.history.fences && this.chance(2)) this.backend.fence(1n)
      if (this.history.replaces && this.chance(5)) this.backend.create("t", this.history.partitions)
      if (this.chance(40)) await this.clock.advance(this.below(20))
    }
    await this.until(Promise.all(settled))
    return calls
  }

  async send(call: Call): Promise<void> {
    const { texts, partition } = call
    const where = partition === undefined ? {} : { partition }
    const payloads = texts.map((text) => Buffer.from(text))
    try {
      const sent =
        texts.length === 1
          ? await this.producer.send(payloads[0] as Uint8Array, where)
          : await this.producer.sendBatch(payloads, where)
      const places = sent.confirmations.flatMap(({ partition: p, baseOffset, count }) =>
        Array.from({ length: count }, (_, i) => [p, Number(baseOffset) + i] as const),
      )
      assert.equal(call.outcome, undefined)
      call.outcome = { kind: "confirmed", places }
    } catch (error) {
      assert.ok(error instanceof MillraceError, String(error))
      assert.equal(call.outcome, undefined)
      call.outcome = { kind: "failed", error }
    }
  }

  get stored(): string[][] {
    return Array.from({ length: this.history.partitions }, (_, p) => this.backend.texts("t", p))
  }

  /** Nothing is stored twice where the backend recognises resends, and first occurrences are in the order of the calls. */
  checkOrder(): Map<string, number> {
    const counts = new Map<string, number>()
    for (const texts of this.stored) {
      for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1)
      const first = [...new Set(texts)].map((text) => Number(text.slice(1)))
      const sorted = first.toSorted((a, b) => a - b)
      assert.deepEqual(first, sorted, "stored in the order of the calls")
    }
    if (this.history.dedup === "none") return counts
    for (const [text, count] of counts) assert.equal(count, 1, `${text} is stored ${count} times`)
    return counts
  }

  check(calls: readonly Call[]): void {
    const { stored } = this
    const counts = this.checkOrder()
    const mayDouble = this.history.dedup === "none"
    for (const { texts, outcome } of calls) {
      if (outcome?.kind === "confirmed") {
        assert.equal(outcome.places.length, texts.length)
        const told = outcome.places.map(([partition, offset]) => stored[partition]?.[offset])
        if (!mayDouble) assert.deepEqual(told, texts)
        else for (const text of texts) assert.ok(counts.has(text), `${text} is confirmed, but not stored`)
      } else if (outcome?.kind === "failed") {
        checkFailure(texts, outcome.error, counts)
      }
    }
  }

  /** The producer goes on, and leaves nothing behind. */
  async checkEnd(): Promise<void> {
    this.quiet = true
    await this.until(this.producer.send(Buffer.from("r999999")))
    await this.until(this.client.close())
    await this.clock.advance(0)
    assert.equal(this.clock.timers, 0, "a timer is left")
  }

  fate(): Fate {
    const delayMs = this.chance(50) ? this.below(30) : 0
    const answerMs = this.chance(50) ? this.below(30) : 0
    if (!this.chance(this.history.trouble)) return { delayMs, answerMs }
    const bad = (["refuse", "refuse", "lose", "lose", "vanish", "silence"] as const)[this.below(6)] ?? "refuse"
    const lasting = bad === "refuse" && !this.mustDeliver && this.chance(10)
    const slow = this.chance(10) ? 1500 : 0
    return {
      delayMs: delayMs + slow,
      answerMs,
      outcome: bad,
      ...(lasting ? { error: new DiskFullError("no room", { retryable: false }) } : {}),
    }
  }

  below(limit: number): number {
    return this.random.uint32() % limit
  }

  chance(percent: number): boolean {
    return this.below(100) < percent
  }

  async until<T>(promise: Promise<T>): Promise<T> {
    let settled = false
    const watched = promise.finally(() => {
      settled = true
    })
    watched.catch(() => {})
    for (let waited = 0; !settled; waited += 500) {
      assert.ok(waited <= settledWithinMs, "something hangs")
      await this.clock.advance(500)
    }
    return await watched
  }
}

function describeFailure({ texts, outcome }: Call): string {
  return `${texts[0]} failed although every trouble was temporary: ${outcome?.kind === "failed" ? outcome.error.message : ""}`
}

/** A failure tells the truth: all records are told of, and none that was rejected is stored. */
function checkFailure(texts: readonly string[], error: MillraceError, counts: ReadonlyMap<string, number>): void {
  assert.ok(error instanceof PublishFailedError || error instanceof ConnectionError, error.stack ?? "")
  if (!(error instanceof PublishFailedError)) return
  const unconfirmed = error.unconfirmed.map(({ payload }) => Buffer.from(payload as Uint8Array).toString())
  const committed = error.committed.reduce((sum, range) => sum + range.count, 0)
  assert.equal(committed + unconfirmed.length, texts.length, "every record is told of once")
  assert.deepEqual(
    unconfirmed.toSorted(),
    texts.filter((text) => unconfirmed.includes(text)).toSorted(),
    "the unconfirmed records are the call's",
  )
  if (error.outcome === "rejected") {
    assert.deepEqual(
      unconfirmed,
      texts.slice(texts.length - unconfirmed.length),
      "nothing went out behind the failed request",
    )
  }
  for (const text of texts) {
    if (!unconfirmed.includes(text)) assert.ok(counts.has(text), `${text} is told as committed, but not stored`)
    else if (error.outcome === "rejected") assert.ok(!counts.has(text), `${text} is told as rejected, but stored`)
  }
}
