/**
 * One address of the cluster: the connection that requests share, its way back after a loss, and connections of others. Attempts of all
 * of them keep one pace.
 */
import { ClosedError, type ConnectionChange, ConnectionError, MillraceError } from "@millrace/contract"
import type { Clock, Random, Timer } from "@millrace/runtime"
import { WireConnection } from "../wire/connection.ts"
import { ReconnectPace } from "./reconnect-pace.ts"

/**
 * For one attempt, TCP and the first answer, ms: the first, which may have to wake a broker that is busy; and those after a loss, where a
 * broker that comes back must not be missed because an attempt from before hangs.
 */
const firstAttemptMs = 10_000
const laterAttemptMs = 5_000

/** A connection without traffic for so long that ends was closed by the broker to save itself the trouble: no loss. ms */
const idleMs = 60_000

export interface ServerOptions {
  readonly host: string
  readonly port: number
  readonly clientId: string
  readonly requestTimeoutMs: number
  readonly clock: Clock
  readonly random: Random
  readonly onConnection: (change: ConnectionChange) => void
  /** Told of every connection that was opened: what the broker offers is then known. */
  readonly onOpen: (connection: WireConnection) => void
}

/** A call that waits for the shared connection. */
interface Waiter {
  readonly resolve: (connection: WireConnection) => void
  readonly reject: (error: MillraceError) => void
  readonly patient: boolean
  readonly timer: Timer
}

export class Server {
  readonly address: string
  readonly #options: ServerOptions
  readonly #pace: ReconnectPace
  readonly #own = new Set<WireConnection>()
  readonly #abort = new AbortController()
  readonly #waiters = new Set<Waiter>()
  /** −1 while it is not known. */
  nodeId: number
  #shared: WireConnection | undefined
  #attempting = false
  #timer: Timer | undefined
  #wasUp = false
  #lostAtMs: number | undefined
  #lastError: MillraceError | undefined
  #retired = false
  #closed = false

  constructor(options: ServerOptions, nodeId: number) {
    this.#options = options
    this.address = `${options.host}:${options.port}`
    this.#pace = new ReconnectPace(options.random)
    this.nodeId = nodeId
  }

  /** The connection that requests share, while it is up. */
  get shared(): WireConnection | undefined {
    return this.#shared
  }

  /** Whether the last attempt failed. */
  get isDown(): boolean {
    return this.#shared === undefined && this.#pace.failures > 0
  }

  /** Whether its loss was told, and its return not yet. */
  get isLost(): boolean {
    return this.#lostAtMs !== undefined
  }

  /** How long it has been lost, ms. */
  get lostForMs(): number {
    return this.#lostAtMs === undefined ? 0 : this.#nowMs() - this.#lostAtMs
  }

  /** Whether nothing would be missed without it. */
  get isIdle(): boolean {
    return this.#shared === undefined && this.#own.size === 0 && this.#waiters.size === 0 && !this.#attempting
  }

  /**
   * The shared connection, opened if need be.
   * @param waitMs How long to wait for it.
   * @param options `patient`: waits through failed attempts; otherwise the first failure is told at once
   * @throws ConnectionError, and what else `WireConnection.open` throws
   */
  connection(waitMs: number, options: { readonly patient: boolean }): Promise<WireConnection> {
    if (this.#shared !== undefined) return Promise.resolve(this.#shared)
    if (this.#closed) return Promise.reject(closedError())
    if (!options.patient && this.isDown && this.#pace.waitMs(this.#nowMs()) > 0) {
      return Promise.reject(this.#unreachable())
    }
    return new Promise((resolve, reject) => {
      const timer = this.#options.clock.setTimer(waitMs, () => {
        this.#waiters.delete(waiter)
        reject(this.#unreachable())
      })
      const waiter: Waiter = { resolve, reject, patient: options.patient, timer }
      this.#waiters.add(waiter)
      this.#proceed()
    })
  }

  /** A connection for one owner. Only to be asked for while the shared one is up, so that an outage costs no attempts. */
  async openOwn(timeoutMs: number): Promise<WireConnection> {
    if (this.#closed) throw closedError()
    let connection: WireConnection
    try {
      connection = await this.#open(Math.min(timeoutMs, laterAttemptMs), () => this.#own.delete(connection))
    } catch (error) {
      if (this.#closed) throw closedError()
      this.#pace.failed(this.#nowMs())
      throw error
    }
    if (this.#closed) {
      connection.close()
      throw closedError()
    }
    this.#own.add(connection)
    return connection
  }

  /** The cluster does not list it any more: a loss is not mended, and a use of it is over when the broker says so. */
  retire(retired: boolean): void {
    this.#retired = retired
    if (retired) this.#lostAtMs = undefined
    this.#proceed()
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#timer?.cancel()
    this.#abort.abort()
    this.#rejectWaiters(() => true, closedError())
    for (const connection of this.#own) connection.close()
    this.#shared?.close()
    this.#shared = undefined
  }

  /** Attempts while somebody waits, or while a connection that was there is missed. */
  #proceed(): void {
    if (this.#closed || this.#shared !== undefined || this.#attempting) return
    this.#timer?.cancel()
    this.#timer = undefined
    const wanted = this.#waiters.size > 0 || (this.#lostAtMs !== undefined && !this.#retired)
    if (!wanted) return
    const waitMs = this.#pace.waitMs(this.#nowMs())
    if (waitMs > 0) {
      this.#timer = this.#options.clock.setTimer(waitMs, () => this.#proceed(), { background: true })
      return
    }
    this.#attempting = true
    this.#attempt().catch((error: unknown) => this.#failed(asMillrace(error)))
  }

  async #attempt(): Promise<void> {
    const connection = await this.#open(this.#wasUp ? laterAttemptMs : firstAttemptMs, (error) =>
      this.#ended(connection, error),
    )
    this.#attempting = false
    if (this.#closed) return connection.close()
    if (connection.closed) throw new ConnectionError(`Kafka at ${this.address} closed the connection once it was open`)
    const nowMs = this.#nowMs()
    this.#shared = connection
    this.#wasUp = true
    this.#lastError = undefined
    this.#pace.connected(nowMs)
    if (this.#lostAtMs !== undefined) {
      const afterMs = nowMs - this.#lostAtMs
      this.#lostAtMs = undefined
      this.#options.onConnection({ state: "restored", server: this.address, afterMs })
    }
    for (const waiter of this.#waiters) {
      waiter.timer.cancel()
      waiter.resolve(connection)
    }
    this.#waiters.clear()
  }

  #failed(error: MillraceError): void {
    this.#attempting = false
    if (this.#closed) return
    this.#lastError = error
    this.#pace.failed(this.#nowMs())
    if (this.#wasUp) this.#tellLost(error)
    this.#rejectWaiters((waiter) => !waiter.patient || !error.retryable, error)
    this.#proceed()
  }

  #ended(connection: WireConnection, error: MillraceError | undefined): void {
    if (this.#closed || this.#shared !== connection) return
    const nowMs = this.#nowMs()
    this.#shared = undefined
    this.#pace.lost(nowMs)
    if (error === undefined || nowMs - connection.lastHeardMs >= idleMs) return
    this.#lastError = error
    this.#tellLost(error)
    this.#proceed()
  }

  #tellLost(error: MillraceError): void {
    if (this.#lostAtMs !== undefined || this.#retired) return
    this.#lostAtMs = this.#nowMs()
    this.#options.onConnection({ state: "lost", server: this.address, error })
  }

  async #open(connectTimeoutMs: number, onEnd: (error: MillraceError | undefined) => void): Promise<WireConnection> {
    const { host, port, clientId, clock, requestTimeoutMs } = this.#options
    const { nodeId } = this
    const to = {
      host,
      port,
      nodeId,
      clientId,
      clock,
      connectTimeoutMs,
      requestTimeoutMs,
      onEnd,
      signal: this.#abort.signal,
    }
    const connection = await WireConnection.open(to)
    this.#options.onOpen(connection)
    return connection
  }

  #rejectWaiters(which: (waiter: Waiter) => boolean, error: MillraceError): void {
    for (const waiter of [...this.#waiters]) {
      if (!which(waiter)) continue
      this.#waiters.delete(waiter)
      waiter.timer.cancel()
      waiter.reject(error)
    }
  }

  #unreachable(): MillraceError {
    const why = this.#lastError === undefined ? "no connection in time" : this.#lastError.message
    return new ConnectionError(`Kafka at ${this.address} is not reachable: ${why}`, {
      ...(this.#lastError === undefined ? {} : { cause: this.#lastError }),
      context: { server: this.address },
    })
  }

  #nowMs(): number {
    return this.#options.clock.monotonicMs()
  }
}

function closedError(): ClosedError {
  return new ClosedError("the session is closed")
}

function asMillrace(error: unknown): MillraceError {
  return error instanceof MillraceError ? error : new ConnectionError(String(error), { cause: error })
}
