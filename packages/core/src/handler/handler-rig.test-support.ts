/** A run over a fake feed and a virtual clock, with handlers that the test settles by hand. */
import assert from "node:assert/strict"
import { MillraceError } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import type { Message } from "../record/message.ts"
import type { RunSurroundings } from "./failure-handling.ts"
import { FakeFeed, type FakeLane, type FakeMessage } from "./fake-feed.test-support.ts"
import type { Handler, HandlerContext } from "./handler-context.ts"
import { HandlerRun } from "./handler-run.ts"
import { checkRunOptions, type RunOptions } from "./run-options.ts"

const utf8 = new TextDecoder()

/** A handler call that has not settled. */
export interface Call {
  readonly text: string
  readonly message: Message
  readonly context: HandlerContext
  resolve(): void
  reject(thrown: unknown): void
}

export class HandlerRig {
  readonly clock: VirtualClock = new VirtualClock()
  readonly feed: FakeFeed
  readonly run: HandlerRun
  /** Running now, by the text of their message. */
  readonly running: Map<string, Call> = new Map()
  /** Every start, in order. */
  readonly started: string[] = []
  /** How the run ended; absent while it is not over. */
  outcome: { readonly error?: unknown } | undefined

  /** @param handler In place of handlers that wait for the test. */
  constructor(
    options: RunOptions & { readonly partitions?: number; readonly around?: Partial<RunSurroundings> } = {},
    handler?: Handler,
  ) {
    const { partitions, around, ...runOptions } = options
    this.feed = new FakeFeed(partitions)
    this.run = new HandlerRun(
      handler ?? ((message, context) => this.#call(message, context)),
      checkRunOptions("the consumer", runOptions),
      {
        what: "the consumer",
        clock: this.clock,
        random: seededRandom(1),
        consumer: "worker",
        group: undefined,
        stored: async () => undefined,
        deadLetters: undefined,
        ...around,
      },
    )
    this.feed.user = this.run
  }

  /** Begins; the rest is the test's. */
  begin(): this {
    this.run.over(this.feed).then(
      () => {
        this.outcome = {}
      },
      (error) => {
        this.outcome = { error }
      },
    )
    return this
  }

  settle(): Promise<void> {
    return this.clock.advance(0)
  }

  async finish(...texts: readonly string[]): Promise<void> {
    for (const text of texts) this.#take(text).resolve()
    await this.settle()
  }

  async fail(text: string, thrown: unknown = new Error("no")): Promise<void> {
    this.#take(text).reject(thrown)
    await this.settle()
  }

  context(text: string): HandlerContext {
    return (this.running.get(text) as Call).context
  }

  get texts(): string[] {
    return [...this.running.keys()]
  }

  #take(text: string): Call {
    const call = this.running.get(text)
    if (call === undefined) throw new Error(`${text} does not run; running: ${this.texts.join(", ")}`)
    this.running.delete(text)
    return call
  }

  #call(message: Message, context: HandlerContext): Promise<void> {
    const text = utf8.decode(message.payload ?? new Uint8Array(0))
    this.started.push(text)
    return new Promise((resolve, reject) => this.running.set(text, { text, message, context, resolve, reject }))
  }
}

/** Messages without a key. */
export const messages = (...texts: readonly string[]): FakeMessage[] => texts.map((text) => ({ text }))

/** Messages whose key is the first letter of their text. */
export const keyed = (...texts: readonly string[]): FakeMessage[] =>
  texts.map((text) => ({ text, key: text[0] as string }))

export const laneOf = (rig: HandlerRig, partition = 0): FakeLane => rig.feed.lanes[partition] as FakeLane

/** The handled prefix of a partition. */
export const prefixOf = (rig: HandlerRig, partition = 0): bigint => laneOf(rig, partition).handled.prefix

/** What the run failed with. */
export function failureOf(rig: HandlerRig): MillraceError {
  assert.ok(rig.outcome?.error instanceof MillraceError, String(rig.outcome?.error ?? "it did not fail"))
  return rig.outcome.error
}
