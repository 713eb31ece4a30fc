/** Arbitrary lives of a background producer, for properties: how it is set up, what is done to it, and what its users hear. */
import assert from "node:assert/strict"
import { ConnectionError, DiskFullError, MillraceError, NotFoundError } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import fc from "fast-check"
import { openClient } from "../client/client.ts"
import type { BackgroundOptions } from "./background-options.ts"
import { FakeBackend, type Fate, fakeManifest, type StoredRecord } from "./fake-backend.test-support.ts"
import type { Producer } from "./producer.ts"
import { PublishFailedError } from "./publish-failed.ts"

/** The size of the buffer. */
export const bufferBytes: number = 1500

/** What a record of nothing takes of it. */
export const overheadBytes: number = 32

type Way = "send" | "confirm" | "enqueue" | "watch"
/** What is done to the producer, or happens to its backend. */
export type Step =
  | { readonly do: "send"; readonly way: Way; readonly to: string | number | undefined; readonly padding: number }
  | { readonly do: "batch"; readonly count: number; readonly to: string | number | undefined }
  | { readonly do: "advance"; readonly ms: number }
  | { readonly do: "flush" | "down" | "up" | "delete" | "grow" | "shutdown" }
  | { readonly do: "recreate"; readonly partitions: number }

/** How the producer is set up. */
export interface Shape {
  readonly partitions: number
  readonly shards: number
  readonly batchLength: number
  readonly lingerMs: number
  readonly maxInFlight: number
  readonly failureMode: "block" | "blockWithTimeout" | "failImmediately"
  readonly retries: number
  readonly dedup: boolean
  readonly onError: "none" | "takes" | "throws" | "waits" | "sends" | "flushes" | "shutsDown" | "hangs"
  readonly largestBatch: number
  readonly longestWritableBytes: number
  readonly init: boolean
  readonly shutdownMs: number
}

/** What becomes of one request. */
export const fates: fc.Arbitrary<Fate> = fc
  .record({
    outcome: fc.constantFrom("store", "store", "store", "refuse", "lose", "vanish", "silence"),
    delayMs: fc.constantFrom(0, 0, 5, 200),
    answerMs: fc.constantFrom(0, 3),
    error: fc.constantFrom(
      undefined,
      undefined,
      new NotFoundError("not yet"),
      new DiskFullError("no room", { retryable: false }),
    ),
  })
  .map(({ error, ...fate }): Fate => (error === undefined || fate.outcome !== "refuse" ? fate : { ...fate, error }))

const to = fc.constantFrom<string | number | undefined>(undefined, undefined, "a", "b", 0, 1, 7)
export const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      do: fc.constant("send" as const),
      way: fc.constantFrom<Way>("send", "send", "confirm", "enqueue", "watch"),
      to,
      padding: fc.constantFrom(0, 0, 80, 300, 600),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("batch" as const), count: fc.integer({ min: 1, max: 4 }), to }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("advance" as const), ms: fc.constantFrom(0, 1, 4, 50, 700) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom("flush" as const, "down" as const, "up" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("delete" as const, "grow" as const, "shutdown" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("recreate" as const), partitions: fc.constantFrom(1, 2, 3) }) },
)

export const shapes: fc.Arbitrary<Shape> = fc.record({
  partitions: fc.constantFrom(1, 2),
  shards: fc.constantFrom(1, 1, 3),
  batchLength: fc.constantFrom(0, 1, 3),
  lingerMs: fc.constantFrom(0, 2, 60_000),
  maxInFlight: fc.constantFrom(1, 5),
  failureMode: fc.constantFrom("block", "block", "blockWithTimeout", "failImmediately"),
  retries: fc.constantFrom(0, 2),
  dedup: fc.boolean(),
  onError: fc.constantFrom("none", "takes", "throws", "waits", "sends", "flushes", "shutsDown", "hangs"),
  largestBatch: fc.constantFrom(1, 2, Number.POSITIVE_INFINITY),
  longestWritableBytes: fc.constantFrom(400, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY),
  init: fc.boolean(),
  shutdownMs: fc.constantFrom(0, 30, 20_000),
})

/** One record and what its sender has heard of it. */
export interface Sent {
  readonly index: number
  readonly to: string | number | undefined
  readonly way: Way
  /** Whether the producer took it; `undefined` while its sender waits. */
  accepted: boolean | undefined
  refusal: MillraceError | undefined
  /** How its own delivery has ended, where somebody looks at it. */
  delivery: "pending" | "confirmed" | "failed" | undefined
  /** How often it came by `onError` and by the error of `shutdown`, and how often `onError` then threw. */
  told: number
  threw: number
  atShutdown: number
  place:
    | { readonly incarnation: readonly StoredRecord[][]; readonly partition: number; readonly offset: bigint }
    | undefined
}

/** A background producer over a backend in memory, and all that its users hear. */
export class Run {
  readonly clock: VirtualClock = new VirtualClock()
  readonly backend: FakeBackend
  readonly producer: Producer
  readonly sent: Sent[] = []
  /** The partitions of every incarnation that there was. */
  readonly incarnations: StoredRecord[][][] = []
  readonly flushes: { readonly before: number; settled: boolean }[] = []
  shutdownError: unknown
  shutdowns = 0
  ended = 0
  isDown = false
  /** Everything had settled before it was shut down. */
  isCalm = false
  readonly #shape: Shape

  constructor(shape: Shape, outcomes: readonly Fate[]) {
    this.#shape = shape
    const manifest = shape.dedup
      ? fakeManifest({}, { payloadBytes: 5000 })
      : fakeManifest(
          { dedup: "none", identityScope: "none", inFlight: { offsets: 1, stored: 1 } },
          { payloadBytes: 5000 },
        )
    this.backend = new FakeBackend(this.clock, manifest)
    this.backend.largestBatch = shape.largestBatch
    this.backend.longestWritableBytes = shape.longestWritableBytes
    this.backend.fate = (append) => (this.isDown ? { outcome: "refuse" } : (outcomes[append] ?? {}))
    this.backend.failDescribe = () => (this.isDown ? new ConnectionError("nobody is there") : undefined)
    const create = this.backend.create.bind(this.backend)
    // The producer may create it too.
    this.backend.create = (...how) => {
      const description = create(...how)
      this.#noteIncarnation()
      return description
    }
    this.recreate(shape.partitions)
    const client = openClient(this.backend.session, {}, { clock: this.clock, random: seededRandom(1) })
    const { shards, batchLength, lingerMs, maxInFlight, failureMode, retries } = shape
    const background: BackgroundOptions = {
      shards,
      batchLength,
      lingerMs,
      maxInFlight,
      failureMode,
      maxBufferBytes: bufferBytes,
      ...(failureMode === "blockWithTimeout" ? { blockTimeoutMs: 40 } : {}),
      ...(shape.onError === "none" ? {} : { onError: (error: PublishFailedError) => this.#hear(error) }),
    }
    this.producer = client.stream("s").topic("t").producer({ retries, retryBackoffMs: 20, background })
  }

  recreate(partitions: number): void {
    this.backend.create("t", partitions)
  }

  grow(): void {
    if (!this.backend.topics.has("t")) return
    this.backend.grow("t", 1)
    this.incarnations.pop()
    this.#noteIncarnation()
  }

  send(way: Way, where: Sent["to"], padding: number): Sent {
    const sent = this.#newSent(way, where)
    const payload = payloadOf(sent.index, padding)
    const options = optionsOf(where)
    switch (way) {
      case "send":
        this.#watchAcceptance(sent, this.producer.send(payload, options), payload)
        break
      case "confirm":
        sent.accepted = true
        this.#watchDelivery(sent, this.producer.sendAndConfirm(payload, options))
        break
      default: {
        const enqueued = this.producer.enqueue({ payload, ...options })
        this.#watchAcceptance(sent, enqueued, payload)
        if (way === "watch") enqueued.then(({ delivery }) => this.#watchDelivery(sent, delivery)).catch(() => {})
      }
    }
    return sent
  }

  sendBatch(count: number, where: Sent["to"]): void {
    const all = Array.from({ length: count }, () => this.#newSent("send", where))
    const batch = all.map(({ index }) => payloadOf(index, 0))
    const accepted = this.producer.sendBatch(batch, optionsOf(where))
    for (const [i, each] of all.entries()) this.#watchAcceptance(each, accepted, batch[i] as Uint8Array)
  }

  flush(): void {
    const flush = { before: this.sent.length, settled: false }
    this.flushes.push(flush)
    void this.producer.flush().then(() => {
      flush.settled = true
      // A turn later whoever awaits its own delivery has heard of it.
      setImmediate(() => {
        for (const { delivery, index } of this.sent.slice(0, flush.before)) {
          if (delivery === "pending") this.faults.push(`r${index} was called before a flush that did not wait for it`)
        }
      })
    })
  }

  readonly faults: string[] = []

  shutdown(timeoutMs: number): void {
    this.shutdowns++
    this.producer.shutdown({ timeoutMs }).then(
      () => this.ended++,
      (error) => {
        this.ended++
        this.shutdownError = error
      },
    )
  }

  async #hear(error: PublishFailedError): Promise<void> {
    const records = error.unconfirmed.map((record) => this.sent[indexOf(record.payload)] as Sent)
    for (const sent of records) sent.told++
    switch (this.#shape.onError) {
      case "throws":
        for (const sent of records) sent.threw++
        throw new Error("the handler broke")
      case "waits":
        await new Promise<void>((resolve) => this.clock.setTimer(3, resolve))
        return
      case "sends":
        if (this.sent.length < 200) this.send("send", records[0]?.to, 0)
        return
      case "flushes":
        await this.producer.flush()
        return
      case "shutsDown":
        // Its error is looked at by whoever calls it from outside.
        await this.producer.shutdown({ timeoutMs: this.#shape.shutdownMs }).catch(() => {})
        return
      case "hangs":
        await new Promise(() => {})
    }
  }

  #newSent(way: Way, where: Sent["to"]): Sent {
    const sent: Sent = {
      index: this.sent.length,
      to: where,
      way,
      accepted: undefined,
      refusal: undefined,
      delivery: undefined,
      told: 0,
      threw: 0,
      atShutdown: 0,
      place: undefined,
    }
    this.sent.push(sent)
    return sent
  }

  #watchAcceptance(sent: Sent, accepted: Promise<unknown>, payload: Uint8Array): void {
    accepted.then(
      () => {
        sent.accepted = true
        // Its sender goes on, and may use the bytes again.
        payload.fill(0)
      },
      (error) => {
        assert.ok(error instanceof MillraceError, String(error))
        if (error.outcome !== "rejected") this.faults.push(`r${sent.index} was refused with outcome ${error.outcome}`)
        sent.accepted = false
        sent.refusal = error
      },
    )
  }

  #watchDelivery(sent: Sent, delivery: Promise<{ partition: number; offset?: bigint }>): void {
    sent.delivery = "pending"
    delivery.then(
      ({ partition, offset }) => {
        sent.delivery = "confirmed"
        if (offset !== undefined) sent.place = { incarnation: this.incarnations.at(-1) ?? [], partition, offset }
      },
      (error) => {
        assert.ok(error instanceof MillraceError, String(error))
        sent.delivery = "failed"
        // Refused before it was accepted.
        if (!(error instanceof PublishFailedError)) sent.accepted = false
        else if (indexOf(error.unconfirmed[0]?.payload ?? null) !== sent.index) {
          this.faults.push(`r${sent.index} was told of another record`)
        }
      },
    )
  }

  #noteIncarnation(): void {
    const known = this.backend.topics.get("t")
    if (known !== undefined) this.incarnations.push(known.partitions.map(({ records }) => records))
  }
}

function payloadOf(index: number, padding: number): Uint8Array {
  return new TextEncoder().encode(`${index};${"x".repeat(padding)}`)
}

/** Which record a payload belongs to; NaN for one that was overwritten. */
export function indexOf(payload: Uint8Array | null): number {
  return Number.parseInt(new TextDecoder().decode(payload ?? new Uint8Array(0)), 10)
}

function optionsOf(where: Sent["to"]): { key?: string; partition?: number } {
  if (where === undefined) return {}
  return typeof where === "string" ? { key: where } : { partition: where }
}

/** Does one step. */
export async function perform(run: Run, step: Step, shutdownMs: number): Promise<void> {
  switch (step.do) {
    case "send":
      run.send(step.way, step.to, step.padding)
      return
    case "batch":
      return run.sendBatch(step.count, step.to)
    case "advance":
      return await run.clock.advance(step.ms)
    case "flush":
      return run.flush()
    case "down":
    case "up":
      run.isDown = step.do === "down"
      return
    case "delete":
      return run.backend.delete("t")
    case "recreate":
      return run.recreate(step.partitions)
    case "grow":
      return run.grow()
    case "shutdown":
      return run.shutdown(shutdownMs)
  }
}
