/**
 * The life of a connection to one server or cluster: which address to call, when to log in, how long to wait before the next try.
 * Pure: time and chance come with the events.
 *
 * | state     | event                  | next      | commands                                      |
 * | --------- | ---------------------- | --------- | --------------------------------------------- |
 * | idle      | start                  | dialing   | dial                                          |
 * | dialing   | dialed                 | loggingIn | logIn                                         |
 * |           | failed, first round    | dialing   | dial the next address                         |
 * |           | failed, all called     | closed    | refuse                                        |
 * |           | failed, was ready once | waiting   | wait                                          |
 * | loggingIn | loggedIn               | ready     | open or restored                              |
 * |           | redirect               | dialing   | drop, dial the leader (at most 3 in a row)    |
 * |           | denied                 | refused   | drop, refuse                                  |
 * |           | failed                 | as dialing |                                              |
 * | ready     | evicted, long ready    | loggingIn | sessionLost, logIn                            |
 * |           | evicted again soon     | waiting   | sessionLost, drop, lost, wait                 |
 * |           | failed                 | waiting   | sessionLost, drop, lost, wait                 |
 * |           | redirect               | dialing   | sessionLost, drop, dial the leader            |
 * | waiting   | timer                  | dialing   | dial                                          |
 * | any       | close                  | closed    | drop                                          |
 */
import type { MillraceError } from "@millrace/contract"
import { backoffMs } from "@millrace/runtime"

export interface Address {
  readonly host: string
  readonly port: number
}

export type ConnectionState =
  | { readonly name: "idle" | "dialing" | "loggingIn" | "waiting" | "closed"; readonly memory: Memory }
  | { readonly name: "ready"; readonly sinceMs: number; readonly memory: Memory }
  | { readonly name: "refused"; readonly error: MillraceError; readonly memory: Memory }

interface Memory {
  readonly addresses: readonly Address[]
  /** Which of the addresses is called next, unless a leader was named. */
  readonly next: number
  readonly current: Address
  /** Failures in a row; a connection that lasted long enough starts over. */
  readonly failures: number
  readonly redirects: number
  /** Whether there was a session. Until then a round over all addresses is all that is tried. */
  readonly opened: boolean
  /** When the last connection was lost, until another one is ready. */
  readonly lostAtMs: number | undefined
}

export type ConnectionEvent = { readonly nowMs: number } & (
  | { readonly type: "start" | "dialed" | "loggedIn" | "timer" | "close" }
  | { readonly type: "redirect"; readonly address: Address; readonly error: MillraceError }
  /** `jitter`: 0 to 1. */
  | { readonly type: "failed" | "evicted"; readonly error: MillraceError; readonly jitter: number }
  /** The server does not take this user, or this protocol: no try will mend it. */
  | { readonly type: "denied"; readonly error: MillraceError }
)

export type ConnectionCommand =
  | { readonly type: "dial"; readonly address: Address }
  | { readonly type: "logIn" | "drop" }
  | { readonly type: "wait"; readonly ms: number }
  | { readonly type: "opened" }
  | { readonly type: "refuse"; readonly error: MillraceError }
  | { readonly type: "sessionLost" | "lost"; readonly error: MillraceError }
  | { readonly type: "restored"; readonly afterMs: number }

/** The waits between tries: 100 ms doubled up to 5 s, a quarter more by chance. That is at most 18 tries in a minute. */
const firstWaitMs = 100
const longestWaitMs = 5000
const mostJitter = 0.25

/** A connection that was ready for so long has proved itself: its loss starts the waits over. */
const provenAfterMs = 10_000

/** Leaders that name each other as leader must not keep us going round. */
const mostRedirects = 3

export function newConnectionState(addresses: readonly Address[]): ConnectionState {
  return {
    name: "idle",
    memory: {
      addresses,
      next: 0,
      current: addresses[0] as Address,
      failures: 0,
      redirects: 0,
      opened: false,
      lostAtMs: undefined,
    },
  }
}

/** The state after an event, and what is to be done about it, in order. An event that means nothing in a state changes nothing. */
export function advance(
  state: ConnectionState,
  event: ConnectionEvent,
): readonly [ConnectionState, readonly ConnectionCommand[]] {
  const { memory } = state
  if (state.name === "closed" || state.name === "refused") return [state, []]
  switch (event.type) {
    case "close":
      return [{ name: "closed", memory }, [{ type: "drop" }]]
    case "start":
      return state.name === "idle" ? dial(memory) : [state, []]
    case "timer":
      return state.name === "waiting" ? dial(memory) : [state, []]
    case "dialed":
      return state.name === "dialing" ? [{ name: "loggingIn", memory }, [{ type: "logIn" }]] : [state, []]
    case "loggedIn":
      return state.name === "loggingIn" ? ready(memory, event.nowMs) : [state, []]
    case "denied":
      return [
        { name: "refused", error: event.error, memory },
        [{ type: "drop" }, { type: "refuse", error: event.error }],
      ]
    case "redirect":
      return redirected(state, event)
    case "evicted":
      return evicted(state, event)
    case "failed":
      return failed(state, event)
  }
}

type Outcome = readonly [ConnectionState, readonly ConnectionCommand[]]
type Failure = Extract<ConnectionEvent, { readonly error: MillraceError; readonly jitter: number }>

function dial(memory: Memory): Outcome {
  const address = memory.addresses[memory.next] as Address
  const next = (memory.next + 1) % memory.addresses.length
  return [{ name: "dialing", memory: { ...memory, next, current: address } }, [{ type: "dial", address }]]
}

function ready(memory: Memory, nowMs: number): Outcome {
  const after: Memory = { ...memory, opened: true, redirects: 0, lostAtMs: undefined }
  const commands: ConnectionCommand[] = [{ type: "opened" }]
  if (memory.lostAtMs !== undefined) commands.push({ type: "restored", afterMs: nowMs - memory.lostAtMs })
  return [{ name: "ready", sinceMs: nowMs, memory: after }, commands]
}

function redirected(state: ConnectionState, event: Extract<ConnectionEvent, { type: "redirect" }>): Outcome {
  const { memory } = state
  if (state.name !== "loggingIn" && state.name !== "ready") return [state, []]
  if (memory.redirects >= mostRedirects) return state.name === "loggingIn" ? ready(memory, event.nowMs) : [state, []]
  const after: Memory = { ...memory, redirects: memory.redirects + 1, current: event.address }
  const commands: ConnectionCommand[] = state.name === "ready" ? [{ type: "sessionLost", error: event.error }] : []
  commands.push({ type: "drop" }, { type: "dial", address: event.address })
  return [{ name: "dialing", memory: after }, commands]
}

function evicted(state: ConnectionState, event: Failure): Outcome {
  if (state.name !== "ready") return failed(state, event)
  const proven = event.nowMs - state.sinceMs >= provenAfterMs
  if (!proven && state.memory.failures > 0) return failed(state, event)
  const memory: Memory = { ...state.memory, failures: 1 }
  return [{ name: "loggingIn", memory }, [{ type: "sessionLost", error: event.error }, { type: "logIn" }]]
}

function failed(state: ConnectionState, event: Failure): Outcome {
  const { memory } = state
  if (state.name === "idle" || state.name === "waiting") return [state, []]
  if (!memory.opened) {
    if (memory.next !== 0) {
      const [next, commands] = dial(memory)
      return [next, [{ type: "drop" }, ...commands]]
    }
    return [{ name: "closed", memory }, [{ type: "drop" }, { type: "refuse", error: event.error }]]
  }
  const proven = state.name === "ready" && event.nowMs - state.sinceMs >= provenAfterMs
  const failures = proven ? 0 : memory.failures
  const ms = Math.ceil(backoffMs(failures, firstWaitMs, longestWaitMs) * (1 + mostJitter * event.jitter))
  const after: Memory = { ...memory, failures: failures + 1, redirects: 0, lostAtMs: memory.lostAtMs ?? event.nowMs }
  const commands: ConnectionCommand[] = []
  if (state.name === "ready") commands.push({ type: "sessionLost", error: event.error })
  commands.push({ type: "drop" })
  if (memory.lostAtMs === undefined) commands.push({ type: "lost", error: event.error })
  commands.push({ type: "wait", ms })
  return [{ name: "waiting", memory: after }, commands]
}
