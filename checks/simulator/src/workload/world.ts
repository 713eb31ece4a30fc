import { MillraceError } from "@millrace/contract"
import type { Client, SendResult, Topic } from "@millrace/core"
import type { FaultyBackend } from "../backend/faulty-backend.ts"
import type { Chance } from "../chance.ts"
import type { SimClock } from "../sim-clock.ts"
import type { Trace } from "../trace.ts"
import type { CallFact, ProgramHistory } from "./history.ts"

/** An invariant that did not hold. */
export interface Violation {
  /** The invariant's name. */
  readonly invariant: string
  readonly text: string
}

/** The stream that all topics of a simulation lie in. */
export const streamName: string = "s"

/** What the actors of one simulation share. */
export class World {
  readonly clock: SimClock
  readonly chance: Chance
  readonly trace: Trace
  readonly backend: FaultyBackend
  readonly history: ProgramHistory
  readonly client: Client
  readonly topics: readonly string[]
  /** Payloads are up to this large, in bytes. */
  readonly largestPayload: number
  readonly violations: Violation[] = []
  /** What each lane may hold, in bytes, where that is bounded. */
  readonly budgets: Map<number, number> = new Map()

  constructor(
    parts: Pick<World, "clock" | "chance" | "trace" | "backend" | "history" | "client" | "topics" | "largestPayload">,
  ) {
    this.clock = parts.clock
    this.chance = parts.chance
    this.trace = parts.trace
    this.backend = parts.backend
    this.history = parts.history
    this.client = parts.client
    this.topics = parts.topics
    this.largestPayload = parts.largestPayload
  }

  get nowMs(): number {
    return this.clock.monotonicMs()
  }

  topic(name: string): Topic {
    return this.client.stream(streamName).topic(name)
  }

  /** Sizes of `count` payloads; now and then one that the backend finds too large. */
  sizes(count: number): number[] {
    return Array.from({ length: count }, () =>
      this.chance.happens(0.01) ? this.largestPayload : this.chance.between(4, 40),
    )
  }

  violate(invariant: string, text: string): void {
    this.violations.push({ invariant, text })
    this.trace.note("world", `VIOLATION ${invariant}: ${text}`)
  }

  /** Writes down how a call ends. */
  follow(call: CallFact, promise: Promise<SendResult>): void {
    this.trace.note("client", `call ${call.id} (${call.lane.kind} ${call.lane.id}) ${describeCall(call)}`)
    promise.then(
      (result) => {
        this.#settle(call, "done")
        call.result = result
        this.trace.note("client", `call ${call.id} ${call.promises} ${describeResult(result)}`)
      },
      (thrown: unknown) => {
        this.#settle(call, "failed")
        if (thrown instanceof MillraceError) call.error = thrown
        else this.violate("typed errors", `call ${call.id} failed with ${String(thrown)}`)
        this.trace.note("client", `call ${call.id} failed: ${describeError(thrown)}`)
      },
    )
  }

  #settle(call: CallFact, state: "done" | "failed"): void {
    call.settlements++
    call.state = state
    call.settledMs = this.nowMs
    call.settledAt = this.history.now
  }
}

function describeCall({ topic, records, isResend }: CallFact): string {
  const first = records[0]?.number
  const last = records.at(-1)?.number
  return `${isResend ? "resends" : "sends"} ${records.length} records #${first}..#${last} to ${topic}${records[0]?.route === "" ? "" : ` by ${records[0]?.route}`}`
}

function describeResult({ confirmations, duplicates }: SendResult): string {
  const ranges = confirmations.map(({ partition, baseOffset, count }) => `${partition}@${baseOffset}+${count}`)
  return `[${ranges.join(" ")}]${duplicates === undefined ? "" : ` duplicates ${duplicates}`}`
}

/** An error in one line. */
export function describeError(error: unknown): string {
  if (!(error instanceof MillraceError)) return String(error)
  return `${error.kind} (${error.outcome}${error.retryable ? ", retryable" : ""}): ${error.message}`
}
