/** For tests: a channel to the made-up store, which answers in the order of the calls, each a turn later. */
import { CancelledError, ClosedError, errorFromWire, errorToWire, type MillraceError } from "@millrace/contract"
import type { CallOptions, Channel } from "../channel.ts"
import type { GroupFixture } from "./group-fixture.test-support.ts"

interface Waiting {
  readonly name: string
  readonly args: unknown
  readonly resolve: (answer: unknown) => void
}

/** Several channels may share one store, as processes do. */
export class FixtureChannel implements Channel {
  /** How often each command was asked. */
  readonly asked: Map<string, number> = new Map()
  /** Commands of these names fail with this error. */
  readonly failures: Map<string, MillraceError> = new Map()
  /** Nothing reaches the process, as when its event loop is blocked. */
  asleep = false
  /** The process that this channel's members live in. */
  readonly pid: number
  readonly #fixture: GroupFixture
  readonly #waiting = new Set<Waiting>()
  #closed = false

  constructor(fixture: GroupFixture, pid: number) {
    this.#fixture = fixture
    this.pid = pid
  }

  async call<R>(name: string, args: unknown, options: CallOptions = {}): Promise<R> {
    this.asked.set(name, (this.asked.get(name) ?? 0) + 1)
    const plain = structuredClone(args)
    await Promise.resolve()
    if (this.#closed) throw new ClosedError("the channel is closed")
    const failure = this.failures.get(name)
    if (failure !== undefined) throw failure
    if (name === "groups.watch") return this.#wait(name, plain, options.signal) as Promise<R>
    this.#fixture.processes.runAs(this.pid)
    try {
      return structuredClone(this.#fixture.call<R>(name, plain))
    } catch (error) {
      throw errorFromWire(structuredClone(errorToWire(error)))
    }
  }

  /** Answers the waits whose time has come. */
  wake(): void {
    if (this.asleep) return
    for (const waiting of this.#waiting) {
      const answer = this.#fixture.call(waiting.name, waiting.args)
      if (answer === undefined) continue
      this.#waiting.delete(waiting)
      waiting.resolve(answer)
    }
  }

  close(): void {
    this.#closed = true
  }

  get waits(): number {
    return this.#waiting.size
  }

  #wait(name: string, args: unknown, signal: AbortSignal | undefined): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const waiting: Waiting = { name, args, resolve }
    this.#waiting.add(waiting)
    signal?.addEventListener("abort", () => {
      if (this.#waiting.delete(waiting)) reject(new CancelledError("the wait was taken back"))
    })
    this.wake()
    return promise
  }
}
