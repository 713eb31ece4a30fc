/** What tests of the connection share. */
import assert from "node:assert/strict"
import { type ConnectionChange, MillraceError } from "@millrace/contract"
import { seededRandom, systemClock } from "@millrace/runtime"
import type { Options } from "../codec/options.ts"
import { type ConnectionOptions, IggyConnection } from "./connection.ts"
import type { SessionChange } from "./lifeline.ts"

export type Tweaks = Partial<ConnectionOptions> & { readonly timeoutMs?: number; readonly signal?: AbortSignal }

export function open(port: number, { timeoutMs = 5000, signal, ...options }: Tweaks = {}): Promise<IggyConnection> {
  return IggyConnection.open(
    {
      addresses: [{ host: "127.0.0.1", port }],
      credentials: { username: "iggy", password: "iggy" },
      clock: systemClock,
      random: seededRandom(1),
      dialTimeoutMs: 2000,
      heartbeatMs: 5000,
      ...options,
    },
    { timeoutMs, ...(signal === undefined ? {} : { signal }) },
  )
}

export const soon: { readonly timeoutMs: number } = { timeoutMs: 5000 }
export const newStream: { readonly name: string; readonly options: Options } = { name: "s", options: [] }

export async function failureOf(promise: Promise<unknown>): Promise<MillraceError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof MillraceError, `no MillraceError: ${String(error)}`)
  return error
}

/** Waits until something is true; the test's own time limit bounds it. */
export async function until(what: () => boolean): Promise<void> {
  while (!what()) await new Promise((resolve) => setImmediate(resolve))
}

/** Keeps sessions and connection changes as text. */
export function diary(): {
  readonly lines: string[]
  readonly options: Pick<ConnectionOptions, "onSession" | "onConnection">
} {
  const lines: string[] = []
  return {
    lines,
    options: {
      onSession: (change: SessionChange) => void lines.push(`session ${change.session} ${change.state}`),
      onConnection: (change: ConnectionChange) => void lines.push(change.state),
    },
  }
}
