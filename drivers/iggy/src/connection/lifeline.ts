/** Keeps a session alive: runs the commands of `connection.machine.ts` over real links, timers and logins. */
import {
  AuthenticationError,
  CancelledError,
  ClosedError,
  type ConnectionChange,
  ConnectionError,
  MillraceError,
  UnsupportedError,
} from "@millrace/contract"
import type { Clock, Random, Timer } from "@millrace/runtime"
import type { Cluster } from "../codec/server-structures.ts"
import { evictionError } from "../wire/eviction.ts"
import type { Frame } from "../wire/frame-reader.ts"
import { frameKinds, kindAt, readEvictionHeader, readReplyHeader } from "../wire/header.ts"
import { readReply } from "../wire/reply.ts"
import type { WireVersion } from "../wire/version.ts"
import {
  type Address,
  advance,
  type ConnectionCommand,
  type ConnectionEvent,
  type ConnectionState,
  newConnectionState,
} from "./connection.machine.ts"
import { type Leader, leaderElsewhere } from "./leader.ts"
import { Link } from "./link.ts"
import { type Credentials, type Granted, Login } from "./login.ts"

export interface ConnectionOptions {
  /** Called in turn until one answers; at least one. */
  readonly addresses: readonly Address[]
  readonly credentials: Credentials
  readonly clock: Clock
  readonly random: Random
  /** Pins the protocol. Absent: 0.11, or what a server that refuses it names. */
  readonly version?: WireVersion
  /** For one attempt to connect, and again for one login. */
  readonly dialTimeoutMs: number
  /** How often a sign of life is sent. A server evicts members of groups that are silent for longer than its own limit (36 s). */
  readonly heartbeatMs: number
  /**
   * Keeps one client id over all logins, where each has one of its own by default (iggy-wire.md: Sessions). A server that is killed restores the
   * members of its groups and never drops those whose clients stay away; one that comes back under its id takes its place again.
   */
  readonly keepClient?: boolean
  /** The contract's: told of losses and returns of the server. */
  readonly onConnection?: (change: ConnectionChange) => void
  /** Told of each new session, the first one included, and of its end: memberships belong to a session. */
  readonly onSession?: (change: SessionChange) => void
}

/** Sessions of one connection count from 1. */
export type SessionChange =
  | { readonly state: "ready"; readonly session: number }
  | { readonly state: "lost"; readonly session: number; readonly error: MillraceError }

/** For the first session. */
export interface OpenLimits {
  readonly timeoutMs: number
  readonly signal?: AbortSignal
}

/** What the owner of a lifeline does for it. */
export interface LifelineOwner {
  /** A reply or a frame that was too large, but for those of logins. */
  take(frame: Frame): void
  /** Nothing that was asked so far will be answered. */
  failAll(error: MillraceError): void
  /** Asks for the nodes of the cluster, on a session that is granted but perhaps not ready. */
  askCluster(): Promise<Cluster>
  /** Sends a sign of life; its failure tells nothing that the lifeline does not find out itself. */
  ping(timeoutMs: number): void
}

/** Frames above it lose their body, and their request fails. */
export const mostReplyBytes: number = 128 << 20
/** A server that says nothing for so many heartbeats, though it was asked, is gone. */
const silentHeartbeats = 3
/** Between two looks for the leader while a node says that it is not. */
const leaderCheckMs = 2000

export class Lifeline {
  readonly #options: ConnectionOptions
  readonly #owner: LifelineOwner
  readonly #clock: Clock
  readonly #opening = Promise.withResolvers<void>()
  #state: ConnectionState
  #link: Link | undefined
  /** Grows with every dial, login and drop: what was begun under another number is stale. */
  #attempt = 0
  #granted: Granted
  #sessions = 0
  #login: Login | undefined
  #pause: { reject(error: MillraceError): void } | undefined
  #waitTimer: Timer | undefined
  #heartbeatTimer: Timer | undefined
  #leaderCheckedAtMs = Number.NEGATIVE_INFINITY
  #lastError: MillraceError | undefined
  #closing: Promise<void> | undefined

  constructor(options: ConnectionOptions, owner: LifelineOwner) {
    this.#options = options
    this.#owner = owner
    this.#clock = options.clock
    this.#state = newConnectionState(options.addresses)
    this.#granted = { client: 0n, session: 0n, serverVersion: "", version: options.version ?? "0.11" }
  }

  /** The session that there is, or was. */
  get granted(): Granted {
    return this.#granted
  }

  get sessions(): number {
    return this.#sessions
  }

  get ready(): boolean {
    return this.#state.name === "ready"
  }

  /** `host:port` of the server that is or was last called. */
  get server(): string {
    const { host, port } = this.#state.memory.current
    return `${host}:${port}`
  }

  /** Why nothing can be asked now, or `undefined`. */
  obstacle(what: string): MillraceError | undefined {
    const state = this.#state
    if (state.name === "ready") return undefined
    if (state.name === "closed") return new ClosedError(`the connection to Apache Iggy at ${this.server} is closed`)
    if (state.name === "refused") return state.error
    const why = this.#lastError === undefined ? "" : `: ${this.#lastError.message}`
    const message = `no session on Apache Iggy at ${this.server} at the moment, ${what} was not sent${why}`
    return new ConnectionError(message, this.#lastError === undefined ? {} : { cause: this.#lastError })
  }

  /** Hands a frame to the link; `done` is called when the frame's bytes are no longer needed, sent or not. */
  write(frame: Buffer, done?: () => void): void {
    if (this.#link === undefined) done?.()
    else this.#link.write(frame, done)
  }

  /** The first session. @throws as `IggyConnection.open`; nothing is left open then */
  async open({ timeoutMs, signal }: OpenLimits): Promise<void> {
    const onAbort = (): void =>
      this.#opening.reject(new CancelledError("connecting to Apache Iggy was cancelled", { cause: signal?.reason }))
    const timer = this.#clock.setTimer(timeoutMs, () => {
      const why = this.#link === undefined ? "" : `: ${this.#link.finding || "the login is not answered"}`
      this.#opening.reject(
        new ConnectionError(`no session on Apache Iggy at ${this.server} within ${timeoutMs} ms${why}`),
      )
    })
    signal?.addEventListener("abort", onAbort, { once: true })
    try {
      if (signal?.aborted) onAbort()
      else this.#apply({ type: "start", nowMs: this.#now() })
      await this.#opening.promise
    } catch (error) {
      await this.close()
      throw error
    } finally {
      timer.cancel()
      signal?.removeEventListener("abort", onAbort)
    }
  }

  /** Settles when the socket is gone. The second call awaits the first. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    const link = this.#link
    this.#lastError = new ClosedError(`the connection to Apache Iggy at ${this.server} was closed`)
    this.#apply({ type: "close", nowMs: this.#now() })
    await link?.closed
  }

  /** The server does not know the session any more. */
  evicted(error: MillraceError): void {
    this.#apply(this.#failure("evicted", error))
  }

  /** What came cannot be understood: the link is given up. */
  broken(error: unknown): void {
    this.#link?.garbled(error)
  }

  /** The node says that it does not lead: looks for the one that does, now and then. */
  checkLeader(): void {
    const nowMs = this.#now()
    if (!this.ready || nowMs - this.#leaderCheckedAtMs < leaderCheckMs) return
    this.#leaderCheckedAtMs = nowMs
    const attempt = this.#attempt
    this.#leaderElsewhere().then(
      (leader) => {
        if (leader !== undefined && this.#attempt === attempt) this.#apply(this.#redirect(leader))
      },
      // The next refusal looks again; a loss of the link is told elsewhere.
      () => undefined,
    )
  }

  #apply(event: ConnectionEvent): void {
    if ("error" in event) this.#lastError = event.error
    const [state, commands] = advance(this.#state, event)
    this.#state = state
    for (const command of commands) this.#run(command)
  }

  #run(command: ConnectionCommand): void {
    const { server } = this
    switch (command.type) {
      case "dial":
        this.#dial(command.address)
        break
      case "logIn":
        this.#logIn().catch((error: unknown) => this.broken(error))
        break
      case "drop":
        this.#drop()
        break
      case "wait":
        this.#waitTimer = this.#clock.setTimer(command.ms, () => this.#apply({ type: "timer", nowMs: this.#now() }))
        break
      case "opened":
        this.#sessions++
        this.#scheduleHeartbeat()
        this.#opening.resolve()
        this.#options.onSession?.({ state: "ready", session: this.#sessions })
        break
      case "refuse":
        this.#opening.reject(namingServer(command.error, server))
        break
      case "sessionLost":
        this.#heartbeatTimer?.cancel()
        this.#owner.failAll(command.error)
        this.#options.onSession?.({ state: "lost", session: this.#sessions, error: command.error })
        break
      case "lost":
        this.#options.onConnection?.({ state: "lost", server, error: command.error })
        break
      case "restored":
        this.#options.onConnection?.({ state: "restored", server, afterMs: command.afterMs })
        break
    }
  }

  #dial(address: Address): void {
    this.#attempt++
    const { clock, dialTimeoutMs } = this.#options
    const link = new Link(
      address,
      { clock, dialTimeoutMs, mostReplyBytes },
      {
        dialed: () => this.#apply({ type: "dialed", nowMs: this.#now() }),
        frame: (frame) => {
          if (this.#link === link) this.#takeFrame(frame)
        },
        failed: (error) => {
          if (this.#link === link) this.#apply(this.#failure("failed", error))
        },
      },
    )
    this.#link = link
  }

  #drop(): void {
    this.#attempt++
    this.#heartbeatTimer?.cancel()
    this.#waitTimer?.cancel()
    const error = this.#lastError ?? new ConnectionError(`the connection to ${this.server} was dropped`)
    const link = this.#link
    this.#link = undefined
    link?.drop()
    this.#login?.fail(error)
    this.#login = undefined
    this.#pause?.reject(error)
    this.#owner.failAll(error)
  }

  async #logIn(): Promise<void> {
    const attempt = ++this.#attempt
    const { credentials, clock, random, dialTimeoutMs } = this.#options
    const login = new Login(this.#link as Link, {
      credentials,
      clock,
      random,
      timeoutMs: dialTimeoutMs,
      version: this.#granted.version,
      client: this.#options.keepClient === true && this.#granted.client !== 0n ? this.#granted.client : undefined,
      negotiable: this.#options.version === undefined,
    })
    this.#login = login
    try {
      const granted = await login.run()
      if (this.#attempt !== attempt) return
      this.#login = undefined
      this.#granted = granted
      const leader = await this.#leaderElsewhere()
      if (this.#attempt !== attempt) return
      this.#apply(leader === undefined ? { type: "loggedIn", nowMs: this.#now() } : this.#redirect(leader))
    } catch (thrown) {
      if (this.#attempt !== attempt) return
      this.#login = undefined
      const error = asMillraceError(thrown)
      const denied = error instanceof AuthenticationError || error instanceof UnsupportedError
      this.#apply(denied ? { type: "denied", error, nowMs: this.#now() } : this.#failure("failed", error))
    }
  }

  #takeFrame(frame: Frame): void {
    const { bytes } = frame
    if (bytes[kindAt] === frameKinds.eviction) {
      const eviction = readEvictionHeader(bytes)
      if (this.#login === undefined) this.evicted(evictionError(eviction, "the session"))
      else this.#login.take(eviction)
    } else if (this.#login !== undefined && readReplyHeader(bytes).request === 0) this.#login.take(readReply(bytes))
    else this.#owner.take(frame)
  }

  #scheduleHeartbeat(): void {
    this.#heartbeatTimer?.cancel()
    this.#heartbeatTimer = this.#clock.setTimer(this.#options.heartbeatMs, () => this.#beat(), { background: true })
  }

  #beat(): void {
    const link = this.#link
    if (link === undefined || !this.ready) return
    const silentMs = this.#options.heartbeatMs * silentHeartbeats
    if (this.#now() - link.heardAtMs >= silentMs) {
      link.fail(new ConnectionError(`${link.address} has said nothing for ${silentMs} ms`))
      return
    }
    this.#owner.ping(silentMs)
    this.#scheduleHeartbeat()
  }

  #leaderElsewhere(): Promise<Leader | undefined> {
    return leaderElsewhere(
      this.#state.memory.current,
      () => this.#owner.askCluster(),
      (ms) => this.#wait(ms),
    )
  }

  /** @throws when the link is dropped */
  async #wait(ms: number): Promise<void> {
    const waited = Promise.withResolvers<void>()
    const timer = this.#clock.setTimer(ms, waited.resolve)
    const pause = { reject: waited.reject }
    this.#pause = pause
    try {
      await waited.promise
    } finally {
      timer.cancel()
      if (this.#pause === pause) this.#pause = undefined
    }
  }

  #failure(type: "failed" | "evicted", error: MillraceError): ConnectionEvent {
    return { type, error, jitter: this.#options.random.uint32() / 2 ** 32, nowMs: this.#now() }
  }

  #redirect(leader: Leader): ConnectionEvent {
    return { type: "redirect", ...leader, nowMs: this.#now() }
  }

  #now(): number {
    return this.#clock.monotonicMs()
  }
}

/** What a server answers does not say which one it is. */
function namingServer(error: MillraceError, server: string): MillraceError {
  const { kind, message, outcome, retryable, context } = error
  if (message.includes(server)) return error
  const named = `no session on Apache Iggy at ${server}: ${message}`
  return new MillraceError(kind, named, { outcome, retryable, context, cause: error })
}

/** Anything thrown, as a failure of the connection. */
function asMillraceError(error: unknown): MillraceError {
  if (error instanceof MillraceError) return error
  return new MillraceError("protocol", `the connection to Apache Iggy failed: ${String(error)}`, { cause: error })
}
