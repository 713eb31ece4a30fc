/** A processor over the fakes: topic `s/t` is read by a group, what it makes goes to `s/out`, and dead letters to `s/dead`. */
import type { Claim, MillraceError } from "@millrace/contract"
import type { VirtualClock } from "@millrace/runtime"
import { seededRandom } from "@millrace/runtime"
import { checkClientOptions } from "../client/client-options.ts"
import type { ClientContext } from "../client/context.ts"
import { LiveContext } from "../client/live-context.ts"
import { Topic } from "../client/topic.ts"
import { FakeClient } from "../consumer/fake-session.test-support.ts"
import { FakeBackend } from "../producer/fake-backend.test-support.ts"
import type { TopicRef } from "../producer/producer.ts"
import type { Message } from "../record/message.ts"
import {
  FakeTransactions,
  type Operation,
  type TransactionFate,
  transactionalManifest,
} from "./fake-transactions.test-support.ts"
import { openProcessor } from "./open-processor.ts"
import type { ProcessContext, ProcessOptions } from "./process-options.ts"
import type { Processor } from "./processor.ts"

export type RigHandler = (payload: string, attempt: number, context: ProcessContext) => unknown

export class ProcessingRig {
  readonly input: FakeClient
  readonly backend: FakeBackend
  readonly transactions: FakeTransactions
  readonly context: LiveContext
  readonly out: Topic
  readonly dead: Topic
  readonly source: Topic
  readonly aborts: MillraceError[] = []

  constructor(options: { readonly partitions?: number; readonly retries?: number } = {}) {
    this.input = new FakeClient({ partitions: options.partitions ?? 1, manifest: transactionalManifest })
    const { clock } = this.input
    this.backend = new FakeBackend(clock)
    this.backend.create("out")
    this.transactions = new FakeTransactions(clock, this.backend, this.input)
    const publish = { timeoutMs: 1000, retries: options.retries ?? 2, retryBackoffMs: 10 }
    this.context = new LiveContext(
      this.transactions.session(),
      { ...checkClientOptions({}, transactionalManifest.limits), stream: "s", publish },
      { clock, random: seededRandom(3) },
    )
    const topic = (name: string): Topic => new Topic(this.context, { stream: "s", topic: name })
    this.source = topic("t")
    this.out = topic("out")
    this.dead = topic("dead")
  }

  get clock(): VirtualClock {
    return this.input.clock
  }

  get client(): ClientContext {
    return this.context
  }

  /** A processor that hands each payload, as text, to the handler. Of a string, or strings, it makes records. */
  process(handler: RigHandler, options: Partial<ProcessOptions<Topic, TopicRef | undefined>> = {}): Processor {
    const given = {
      from: { topic: this.source, group: "g", startAt: { kind: "first" } },
      to: this.out,
      ...options,
      handler: (message: Message, context: ProcessContext) => {
        const text = new TextDecoder().decode(message.payload as Uint8Array)
        return asOutputs(handler(text, context.attempt, context))
      },
    } as unknown as ProcessOptions<Topic, Topic>
    const processor = openProcessor(this.context, given)
    processor.on({ aborted: ({ error }) => void this.aborts.push(error) })
    return processor
  }

  /** Gives the member these partitions. */
  assign(...partitions: number[]): Claim[] {
    const claims = partitions.map((partition) => this.input.claim(partition, { of: partition, turn: Symbol() }))
    this.input.groups.membership.tell({ assigned: claims })
    return claims
  }

  /** The `nth` question of a kind, counted from now on. */
  fates(list: Partial<Record<Operation, readonly TransactionFate[]>>): void {
    const from = new Map(this.transactions.asked)
    this.transactions.fate = (operation, nth) => list[operation]?.[nth - (from.get(operation) ?? 0)] ?? {}
  }

  /** What is committed. */
  get made(): string[] {
    return this.backend.texts("out")
  }

  asked(operation: Operation): number {
    return this.transactions.asked.get(operation) ?? 0
  }
}

function asOutputs(answer: unknown): unknown {
  if (typeof answer === "string") return new TextEncoder().encode(answer)
  if (Array.isArray(answer)) return answer.map(asOutputs)
  return answer instanceof Promise ? answer.then(asOutputs) : answer
}

/** What is there of each number, in order: `0` to `count` − 1, once. */
export function numbers(count: number, from = 0): string[] {
  return Array.from({ length: count }, (_, i) => String(from + i))
}
