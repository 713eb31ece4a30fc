import { AsyncLocalStorage, AsyncResource } from "node:async_hooks"
import type { Message, Position } from "../record/message.ts"

/** What a handler gets beside its message. */
export interface HandlerContext {
  /** Which attempt of this message it is, from 1. */
  readonly attempt: number
  /** Where the message stands. */
  readonly position: Position
  /**
   * Fires when nothing waits for this handler any more: its partition went to another member, was seeked, or the time that running
   * handlers get at the end is over. What the handler does from then on is not committed.
   */
  readonly signal: AbortSignal
  /** Nothing more starts; `run` resolves once the running handlers have finished. The consumer stays open. */
  stop(): void
}

/** What takes or returns nothing in particular: `run`'s handlers. May be async; what it throws or rejects with is the failure. */
export type Handler<M extends Message = Message> = (message: M, context: HandlerContext) => unknown

/** The run that a handler belongs to. */
export interface ContextOwner {
  stop(): void
  /** The handler has called the consumer's `shutdown`. */
  shutdownCalled(): void
}

/** The context of one attempt. The signal is made when somebody looks at it. */
export class AttemptContext implements HandlerContext {
  readonly attempt: number
  readonly owner: ContextOwner
  /** Until the handler has settled. */
  running = true
  readonly #message: Message
  #controller: AbortController | undefined
  #aborted: Error | undefined

  constructor(owner: ContextOwner, message: Message, attempt: number) {
    this.owner = owner
    this.#message = message
    this.attempt = attempt
  }

  get position(): Position {
    return this.#message.position
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#aborted !== undefined) this.#controller.abort(this.#aborted)
    }
    return this.#controller.signal
  }

  stop(): void {
    this.owner.stop()
  }

  /** The first reason counts. */
  abort(reason: Error): void {
    if (this.#aborted !== undefined) return
    this.#aborted = reason
    this.#controller?.abort(reason)
  }
}

const inside = new AsyncLocalStorage<HandlerScope | undefined>()

/**
 * The async context of handlers, one after the other: what a handler calls, also after its awaits, is known to come from it, and it sees
 * the async context of who called `run`. Entering one that exists costs a tenth of making one, which is why there is one a place, not
 * one a message; what a handler has left running behind its end passes for work of the next one in its place.
 */
export class HandlerScope {
  /** The one that runs in it. */
  attempt: AttemptContext | undefined
  readonly #resource: AsyncResource

  /** @param base Made where `run` was called. */
  constructor(base: AsyncResource) {
    const make = (): AsyncResource => inside.run(this, () => new AsyncResource("MILLRACE_HANDLER"))
    this.#resource = base.runInAsyncScope(make)
  }

  call(context: AttemptContext, handler: Handler, message: Message): unknown {
    this.attempt = context
    return this.#resource.runInAsyncScope(handler, undefined, message, context)
  }
}

/** The async context of the caller, for `HandlerScope`. */
export function callersContext(): AsyncResource {
  return new AsyncResource("MILLRACE_RUN")
}

/** Runs what is not the work of any handler, whoever calls. */
export function outside<R>(work: () => R): R {
  return inside.run(undefined, work)
}

/** The attempt whose handler has called, while it runs. */
export function callingAttempt(): AttemptContext | undefined {
  const attempt = inside.getStore()?.attempt
  return attempt?.running === true ? attempt : undefined
}
