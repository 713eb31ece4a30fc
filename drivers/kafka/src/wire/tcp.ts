/** Opens TCP connections, with a time limit and a way to give up. */
import { connect as connectTcp, type Socket } from "node:net"
import { ClosedError, ConnectionError, type MillraceError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"

export interface TcpTarget {
  readonly host: string
  readonly port: number
  /** How messages call the server. */
  readonly server: string
  readonly clock: Clock
  readonly timeoutMs: number
  /** Gives the attempt up. */
  readonly signal?: AbortSignal | undefined
}

/** @throws ConnectionError naming what TCP says; ClosedError when it was given up */
export function openTcp(target: TcpTarget): Promise<Socket> {
  const { host, port, server, clock, timeoutMs, signal } = target
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(givenUp(server))
    const socket = connectTcp({ host, port, noDelay: true })
    const settle = (): void => {
      timer.cancel()
      signal?.removeEventListener("abort", abort)
      socket.removeListener("error", failed)
    }
    const fail = (error: MillraceError): void => {
      settle()
      socket.on("error", () => {}) // What a destroyed socket still reports was told already.
      socket.destroy()
      reject(error)
    }
    const unreachable = (why: string, cause?: unknown): ConnectionError =>
      new ConnectionError(`${server} could not be reached${why}`, {
        cause,
        context: { server: `${host}:${port}` },
      })
    const abort = (): void => fail(givenUp(server))
    const failed = (cause: Error): void => fail(unreachable(`: ${reasonOf(cause)}`, cause))
    const late = (): void => fail(unreachable(` within ${timeoutMs} ms`))
    const timer = clock.setTimer(timeoutMs, late, { background: true })
    signal?.addEventListener("abort", abort, { once: true })
    socket.on("error", failed)
    socket.once("connect", () => {
      settle()
      resolve(socket)
    })
  })
}

/** A host with several addresses fails with one error for each, and no message of its own. */
function reasonOf(cause: Error): string {
  if (cause instanceof AggregateError) return cause.errors.map((error: Error) => error.message).join("; ")
  return cause.message
}

export function givenUp(server: string): ClosedError {
  return new ClosedError(`the attempt to connect to ${server} was given up`)
}
