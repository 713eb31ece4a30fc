import type { ConnectTarget, Driver, Session, SessionOptions } from "@millrace/contract"
import { CancelledError, TimeoutError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"

/** The bounds of an attempt to connect. */
export interface OpenOptions extends SessionOptions {
  readonly clock: Clock
}

/**
 * Connects within a time, or until the signal fires. The driver is told both; should it take no notice, the caller goes on without it,
 * and a session that comes too late is closed at once.
 * @throws TimeoutError, CancelledError, and whatever the driver throws
 */
export function openSession(driver: Driver, target: ConnectTarget, options: OpenOptions): Promise<Session> {
  const { clock, ...sessionOptions } = options
  const { timeoutMs, signal } = sessionOptions
  if (signal?.aborted) return Promise.reject(cancelled(target, signal))
  return new Promise((resolve, reject) => {
    let waiting = true
    const settle = (act: () => void): void => {
      waiting = false
      timer.cancel()
      signal?.removeEventListener("abort", abort)
      act()
    }
    const abort = (): void => settle(() => reject(cancelled(target, signal)))
    const timer = clock.setTimer(timeoutMs, () => settle(() => reject(timedOut(target, timeoutMs))))
    signal?.addEventListener("abort", abort, { once: true })
    const attempt = connect(driver, target, sessionOptions)
    attempt.then(
      (session) => (waiting ? settle(() => resolve(session)) : discard(session)),
      // Behind a time-out or an abort the caller has its answer already, and this one adds nothing to it.
      (error: unknown) => (waiting ? settle(() => reject(error)) : undefined),
    )
  })
}

/** A driver that throws in place of rejecting is treated alike. */
async function connect(driver: Driver, target: ConnectTarget, options: SessionOptions): Promise<Session> {
  return await driver.connect(target, options)
}

/** Nobody holds this session: there is no caller left to hear how closing it went. */
function discard(session: Session): void {
  session.close().catch(() => {})
}

function timedOut(target: ConnectTarget, timeoutMs: number): TimeoutError {
  return new TimeoutError(`no connection to ${name(target)} within ${timeoutMs} ms`, {
    outcome: "rejected",
    context: { scheme: target.scheme, timeoutMs },
  })
}

function cancelled(target: ConnectTarget, signal: AbortSignal | undefined): CancelledError {
  return new CancelledError(`connecting to ${name(target)} was cancelled`, {
    context: { scheme: target.scheme },
    cause: signal?.reason,
  })
}

/** What the target is, without user, password and options. */
function name(target: ConnectTarget): string {
  if (target.hosts.length === 0) return `${target.scheme}:${target.path}`
  const hosts = target.hosts.map(({ host, port }) => (port === undefined ? host : `${host}:${port}`))
  return `${target.scheme}://${hosts.join(",")}`
}
