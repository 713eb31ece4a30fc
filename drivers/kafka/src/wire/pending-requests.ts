/** Requests that wait for their answers on one connection: first in, first out, as brokers answer in order. */
import type { MillraceError } from "@millrace/contract"
import type { Api } from "../protocol/api.ts"

/** One request under way. */
export class PendingRequest {
  readonly api: Api<never, unknown>
  readonly version: number
  readonly correlationId: number
  readonly timeoutMs: number
  readonly deadlineMs: number
  readonly readOnly: boolean
  /** Whether its bytes went to the socket: from then on the broker may have it. */
  written = false
  /** Given up at its deadline. Its answer is still to come, and is dropped. */
  abandoned = false
  readonly resolve: (answer: unknown) => void
  readonly reject: (error: MillraceError) => void

  constructor(
    request: Pick<PendingRequest, "api" | "version" | "correlationId" | "timeoutMs" | "deadlineMs" | "readOnly">,
    settle: Pick<PendingRequest, "resolve" | "reject">,
  ) {
    this.api = request.api
    this.version = request.version
    this.correlationId = request.correlationId
    this.timeoutMs = request.timeoutMs
    this.deadlineMs = request.deadlineMs
    this.readOnly = request.readOnly
    this.resolve = settle.resolve
    this.reject = settle.reject
  }
}

/** Slots that are free at the front before the list is moved together. */
const slack = 64

export class PendingRequests {
  #list: PendingRequest[] = []
  #head = 0

  get size(): number {
    return this.#list.length - this.#head
  }

  /** The one whose answer comes next. */
  get oldest(): PendingRequest | undefined {
    return this.#list[this.#head]
  }

  add(request: PendingRequest): void {
    this.#list.push(request)
  }

  /** Takes the oldest out. */
  shift(): void {
    this.#head++
    if (this.#head === this.#list.length || this.#head >= slack + (this.#list.length >> 1)) {
      this.#list = this.#list.slice(this.#head)
      this.#head = 0
    }
  }

  /** Marks all whose time is over, and answers them. Their answers are still to come. */
  expire(nowMs: number): PendingRequest[] {
    const expired: PendingRequest[] = []
    for (let i = this.#head; i < this.#list.length; i++) {
      const request = this.#list[i] as PendingRequest
      if (request.abandoned || request.deadlineMs > nowMs) continue
      request.abandoned = true
      expired.push(request)
    }
    return expired
  }

  /** The earliest deadline of those that still wait; `undefined` when none does. */
  nextDeadlineMs(): number | undefined {
    let earliest: number | undefined
    for (let i = this.#head; i < this.#list.length; i++) {
      const { abandoned, deadlineMs } = this.#list[i] as PendingRequest
      if (!abandoned && (earliest === undefined || deadlineMs < earliest)) earliest = deadlineMs
    }
    return earliest
  }

  /** Takes all out. */
  drain(): PendingRequest[] {
    const all = this.#list.slice(this.#head)
    this.#list = []
    this.#head = 0
    return all
  }
}
