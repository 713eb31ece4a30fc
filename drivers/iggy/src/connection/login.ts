/** The login of a session: who, in which version, and what becomes of it (iggy-wire.md: Login). */
import { ConnectionError, type MillraceError } from "@millrace/contract"
import type { Clock, Random, Timer } from "@millrace/runtime"
import { bindSecretBytes, type LoggedIn } from "../codec/login-structures.ts"
import { loginRegister, loginRegisterWithToken } from "../codec/server-commands.ts"
import { errorCodes, serverError } from "../codec/server-error.ts"
import { ByteReader } from "../wire/byte-reader.ts"
import { ByteWriter } from "../wire/byte-writer.ts"
import { evictionError, evictionReasons } from "../wire/eviction.ts"
import { type EvictionHeader, headerBytes, writeRequestHeader } from "../wire/header.ts"
import { register } from "../wire/operation.ts"
import type { Reply } from "../wire/reply.ts"
import { packedVersion, versionWithin, type WireVersion } from "../wire/version.ts"
import type { Link } from "./link.ts"

/** With a user's password, or with a personal access token. */
export type Credentials = { readonly username: string; readonly password: string } | { readonly token: string }

export interface LoginOptions {
  readonly credentials: Credentials
  readonly clock: Clock
  readonly random: Random
  readonly timeoutMs: number
  /** Tried first. */
  readonly version: WireVersion
  /** Absent: a new one for each try, so that the server never takes it for an older one (iggy-wire.md: Sessions). */
  readonly client: bigint | undefined
  /** Whether a server that refuses the version may name another one. */
  readonly negotiable: boolean
}

export interface Granted {
  readonly client: bigint
  readonly session: bigint
  readonly serverVersion: string
  readonly version: WireVersion
}

/** Between two tries while the server cannot take or commit a login yet (iggy-wire.md: Sessions). */
const passingMs = 50

const sdkName = "millrace"
const sdkVersion = "0.1.0"

/** One login on one link. Frames that answer it are handed to it, since they carry no number of their own. */
export class Login {
  readonly #link: Link
  readonly #options: LoginOptions
  #waiter: PromiseWithResolvers<Reply | EvictionHeader> | undefined
  #lost: ((error: MillraceError) => void) | undefined

  constructor(link: Link, options: LoginOptions) {
    this.#link = link
    this.#options = options
  }

  /** A reply to request 0, or an eviction. */
  take(answer: Reply | EvictionHeader): void {
    this.#waiter?.resolve(answer)
  }

  /** The link is gone. */
  fail(error: MillraceError): void {
    this.#lost?.(error)
  }

  /**
   * @throws AuthenticationError, UnsupportedError for other versions of the protocol, ConnectionError
   */
  async run(): Promise<Granted> {
    const { version, negotiable } = this.#options
    const first = await this.#try(version)
    if (!("reason" in first)) return first
    const other = negotiable ? versionFor(first, version) : undefined
    if (other === undefined) throw evictionError(first, loginRegister.name)
    const second = await this.#try(other)
    if ("reason" in second) throw evictionError(second, loginRegister.name)
    return second
  }

  async #try(version: WireVersion): Promise<Granted | EvictionHeader> {
    const { credentials, random } = this.#options
    const client = this.#options.client ?? randomU128(random)
    const frame = loginFrame(credentials, version, random)
    const stamp = version === "0.12" ? randomU128(random) : 0n
    writeRequestHeader(frame, {
      client,
      session: 0n,
      request: 0,
      operation: register,
      code: 0,
      stamp,
      context: undefined,
    })
    const { clock, timeoutMs } = this.#options
    const untilMs = clock.monotonicMs() + timeoutMs
    let answer = await this.#exchange(frame)
    while ("code" in answer && isPassing(answer.code) && clock.monotonicMs() < untilMs) {
      await this.#pause(passingMs)
      answer = await this.#exchange(frame)
    }
    if ("reason" in answer) return answer
    if (answer.code !== 0) throw serverError(answer.code, loginRegister.name)
    const { session, serverVersion } = readGrant(answer, version)
    return { client, session, serverVersion, version }
  }

  #exchange(frame: Buffer): Promise<Reply | EvictionHeader> {
    const { timeoutMs } = this.#options
    const answer = this.#await<Reply | EvictionHeader>((waiter) => {
      this.#waiter = waiter
      return this.#options.clock.setTimer(timeoutMs, () => {
        const { finding, address } = this.#link
        const found = finding === "" ? "" : `: ${finding}`
        waiter.reject(new ConnectionError(`${address} did not answer the login within ${timeoutMs} ms${found}`))
      })
    })
    this.#link.write(frame)
    return answer
  }

  #pause(ms: number): Promise<void> {
    return this.#await<void>((waiter) => this.#options.clock.setTimer(ms, waiter.resolve))
  }

  /** What is waited for ends with the link, too. */
  async #await<T>(start: (waiter: PromiseWithResolvers<T>) => Timer): Promise<T> {
    const waiter = Promise.withResolvers<T>()
    this.#lost = waiter.reject
    const timer = start(waiter)
    try {
      return await waiter.promise
    } finally {
      timer.cancel()
      this.#lost = undefined
      this.#waiter = undefined
    }
  }
}

/** A number that is never 0. */
export function randomU128(random: Random): bigint {
  let value = 0n
  for (let i = 0; i < 4; i++) value = (value << 32n) | BigInt(random.uint32())
  return value | 1n
}

function loginFrame(credentials: Credentials, version: WireVersion, random: Random): Buffer {
  const writer = new ByteWriter(headerBytes + 128)
  writer.zeros(headerBytes)
  const start = {
    protocolVersion: packedVersion(version),
    sdkName,
    sdkVersion,
    bindSecret: version === "0.11" ? new Uint8Array(0) : randomBytes(bindSecretBytes, random),
    context: "",
  }
  if ("token" in credentials) loginRegisterWithToken.request.write(writer, { ...start, ...credentials }, version)
  else loginRegister.request.write(writer, { ...start, ...credentials }, version)
  return writer.bytes()
}

function isPassing(code: number): boolean {
  return code === errorCodes.transientNotCommitted || code === errorCodes.transientNotAccepted
}

function readGrant(reply: Reply, version: WireVersion): LoggedIn {
  const reader = new ByteReader(reply.payload, "the reply of Apache Iggy to the login")
  const granted = loginRegister.reply.read(reader, version)
  reader.end()
  return granted
}

function versionFor(eviction: EvictionHeader, tried: WireVersion): WireVersion | undefined {
  if (eviction.reason !== evictionReasons.incompatibleProtocol) return undefined
  const other = versionWithin(eviction.oldestVersion, eviction.newestVersion)
  return other === tried ? undefined : other
}

function randomBytes(count: number, random: Random): Uint8Array {
  const bytes = new Uint8Array(count)
  for (let i = 0; i < count; i++) bytes[i] = random.uint32() & 0xff
  return bytes
}
