/** The main thread's end of the worker: typed requests, each settled exactly once. */
import { Worker } from "node:worker_threads"
import {
  CancelledError,
  ClosedError,
  errorFromWire,
  InvalidError,
  type MillraceError,
  StorageError,
  TimeoutError,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import type { EngineReply, EngineRequest } from "./engine/request.ts"
import { workerCode } from "./worker-code.ts"
import type { FromWorker, ToWorker, WorkerStart } from "./worker-message.ts"

/** How the main thread talks to the engine in the worker. */
export interface Channel {
  /**
   * Asks one command of the engine by its name. Arguments and answer are structured-cloned: plain objects, bigint, Uint8Array.
   * Calls of one turn travel together and keep their order.
   *
   * Rejects with the command's own `MillraceError`; with `ClosedError` after `close`; with `StorageError` (outcome unknown) when the
   * worker died; with `CancelledError` when the signal fires, which takes a waiting command back and leaves a write as it is.
   */
  call<R>(name: string, args: unknown, options?: CallOptions): Promise<R>
}

/** How one call is waited for. */
export interface CallOptions {
  readonly signal?: AbortSignal
  /** Does not keep the process alive while it waits. Default false. */
  readonly background?: boolean
}

interface Pending {
  readonly resolve: (value: never) => void
  readonly reject: (error: MillraceError) => void
  readonly background: boolean
}

/**
 * A worker and the requests that are under way in it. While there are some the worker keeps the process alive; otherwise it does not,
 * so that a program that forgot to close its client still ends.
 */
export class WorkerChannel implements Channel {
  /** The store's real directory. */
  directory = ""
  readonly #worker: Worker
  readonly #pending = new Map<number, Pending>()
  readonly #opened = Promise.withResolvers<void>()
  readonly #ended = Promise.withResolvers<void>()
  #foreground = 0
  #lastId = 0
  #outbox: EngineRequest[] = []
  #closing: Promise<void> | undefined
  #gone: MillraceError | undefined
  #closeError: MillraceError | undefined

  /** Starts the worker and waits until the store is open. @throws what opening throws, TimeoutError, CancelledError */
  static async open(start: WorkerStart, options: OpenOptions): Promise<WorkerChannel> {
    if (options.signal?.aborted) throw cancelled("connecting", options.signal)
    const channel = new WorkerChannel(start)
    const interrupted = Promise.withResolvers<never>()
    const timer = options.clock.setTimer(options.timeoutMs, () =>
      interrupted.reject(
        new TimeoutError(`opening the store at ${JSON.stringify(start.path)} took more than ${options.timeoutMs} ms`, {
          outcome: "rejected",
        }),
      ),
    )
    const abort = (): void => interrupted.reject(cancelled("connecting", options.signal))
    options.signal?.addEventListener("abort", abort, { once: true })
    try {
      await Promise.race([channel.#opened.promise, interrupted.promise])
      channel.#worker.unref()
      return channel
    } catch (error) {
      await channel.#stop()
      throw error
    } finally {
      timer.cancel()
      options.signal?.removeEventListener("abort", abort)
    }
  }

  private constructor(start: WorkerStart) {
    this.#worker = newWorker(start)
    this.#worker.on("message", (message: FromWorker) => this.#receive(message))
    this.#worker.on("error", (error) => this.#lose(error))
    this.#worker.on("exit", () => this.#exit())
    // Whoever opens awaits it; a worker that dies before that must not end the process.
    this.#opened.promise.catch(() => {})
  }

  call<R>(name: string, args: unknown, options: CallOptions = {}): Promise<R> {
    const refusal = this.#refusal()
    if (refusal !== undefined) return Promise.reject(refusal)
    if (options.signal?.aborted) return Promise.reject(cancelled(name, options.signal))
    const id = ++this.#lastId
    const { promise, resolve, reject } = Promise.withResolvers<R>()
    const background = options.background === true
    this.#pending.set(id, { resolve, reject, background })
    if (!background && this.#foreground++ === 0) this.#worker.ref()
    if (this.#outbox.push({ id, name, args }) === 1) queueMicrotask(() => this.#flush())
    return options.signal === undefined ? promise : this.#cancellable(promise, { id, name, signal: options.signal })
  }

  /** Lets what was asked before finish, fails what waits, closes the store and ends the worker. The second call awaits the first. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    if (this.#gone === undefined) {
      this.#worker.ref()
      this.#flush()
      this.#send({ kind: "close" })
    }
    await this.#ended.promise
    if (this.#closeError !== undefined) throw this.#closeError
  }

  #flush(): void {
    if (this.#outbox.length === 0) return
    const requests = this.#outbox
    this.#outbox = []
    try {
      this.#send({ kind: "requests", requests })
    } catch {
      // Something in one of them cannot cross a thread: the others can.
      for (const request of requests) this.#sendAlone(request)
    }
  }

  #sendAlone(request: EngineRequest): void {
    try {
      this.#send({ kind: "requests", requests: [request] })
    } catch (cause) {
      const refusal = new InvalidError(`the arguments of ${request.name} cannot be handed over: ${String(cause)}`, {
        cause,
      })
      this.#take(request.id)?.reject(refusal)
    }
  }

  #send(message: ToWorker): void {
    this.#worker.postMessage(message)
  }

  #receive(message: FromWorker): void {
    switch (message.kind) {
      case "replies":
        for (const reply of message.replies) this.#settle(reply)
        break
      case "open":
        this.directory = message.directory
        this.#opened.resolve()
        break
      case "failed":
        this.#gone = errorFromWire(message.error)
        this.#opened.reject(this.#gone)
        break
      case "closed":
        if (message.error !== undefined) this.#closeError = errorFromWire(message.error)
        break
    }
  }

  #settle(reply: EngineReply): void {
    const pending = this.#take(reply.id)
    if (pending === undefined) return
    if ("error" in reply) pending.reject(errorFromWire(reply.error))
    else pending.resolve(reply.value as never)
  }

  #take(id: number): Pending | undefined {
    const pending = this.#pending.get(id)
    if (pending === undefined) return undefined
    this.#pending.delete(id)
    if (!pending.background && --this.#foreground === 0 && this.#closing === undefined) this.#worker.unref()
    return pending
  }

  #cancellable<R>(promise: Promise<R>, call: { id: number; name: string; signal: AbortSignal }): Promise<R> {
    const { id, name, signal } = call
    const abort = (): void => {
      const pending = this.#take(id)
      if (pending === undefined) return
      if (this.#gone === undefined) {
        this.#flush()
        this.#send({ kind: "cancel", id })
      }
      pending.reject(cancelled(name, signal))
    }
    signal.addEventListener("abort", abort, { once: true })
    return promise.finally(() => signal.removeEventListener("abort", abort))
  }

  #refusal(): MillraceError | undefined {
    if (this.#closing !== undefined) return new ClosedError("the session is closed")
    if (this.#gone === undefined) return undefined
    return new StorageError(`the session is of no use any more: ${this.#gone.message}`, {
      cause: this.#gone,
      outcome: "rejected",
    })
  }

  #lose(error: unknown): void {
    this.#gone = new StorageError(`the worker of the store died: ${String(error)}`, {
      cause: error,
      outcome: "unknown",
    })
    this.#opened.reject(this.#gone)
    this.#exit()
  }

  #exit(): void {
    const closed = new ClosedError("the session is closed")
    this.#gone ??=
      this.#closing === undefined ? new StorageError("the worker of the store ended", { outcome: "unknown" }) : closed
    this.#opened.reject(this.#gone)
    for (const id of [...this.#pending.keys()]) this.#take(id)?.reject(this.#gone)
    this.#ended.resolve()
  }

  async #stop(): Promise<void> {
    this.#gone ??= new ClosedError("the session was not opened")
    this.#closing = this.#ended.promise
    await this.#worker.terminate()
    this.#exit()
  }
}

/** How long opening may take, and what ends it earlier. */
export interface OpenOptions {
  readonly clock: Clock
  readonly timeoutMs: number
  readonly signal?: AbortSignal
}

function newWorker(start: WorkerStart): Worker {
  const options = { name: "millrace-store", workerData: start }
  if (workerCode !== undefined) return new Worker(workerCode, { ...options, eval: true })
  const extension = import.meta.url.slice(import.meta.url.lastIndexOf("."))
  return new Worker(new URL(`./worker${extension}`, import.meta.url), options)
}

function cancelled(what: string, signal: AbortSignal | undefined): CancelledError {
  return new CancelledError(`${what} was cancelled`, { cause: signal?.reason })
}
