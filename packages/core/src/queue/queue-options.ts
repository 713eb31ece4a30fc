/** What a work queue can be told, with the defaults of table 4.2 of the options and the checks of each. */
import { type AckPolicy, InvalidError, type QueueSpec, type QueueStart } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import { type DeadLetterPolicy, isDeadLetterPolicy } from "../handler/dead-letter.ts"
import { checkStartAt, type StartAt } from "../partition/start-at.ts"

/**
 * Options of `topic.queue`. All but `createQueue` and `deadLetter` are kept with the queue: one that exists keeps what it was made with. An
 * option that is not given is then as the queue has it, and one that is given must be the same.
 */
export interface QueueOptions {
  /**
   * `"explicit"` (default): each message is settled by itself. `"all"`: an ack covers what was handed out of its partition before it.
   * `"none"`: handing out settles, so that what is handed out when a process dies is gone.
   */
  readonly ackPolicy?: AckPolicy
  /** How long a message that was handed out is waited for before it is handed out again, in ms. Default 30,000. */
  readonly ackWaitMs?: number
  /** In place of `ackWaitMs`: the wait of each delivery, the last one's for all that follow; 1 to 100 of them. Default none. */
  readonly backoffMs?: readonly number[]
  /**
   * How often a message is handed to a handler or a caller; from 1, and not below the number of waits in `backoffMs`. After that it goes to
   * the dead-letter topic, or is given up. Default: without end.
   */
  readonly maxDeliver?: number
  /** The most messages that are handed out and not settled, by all consumers of the queue; `false`: no bound. Default 1000. */
  readonly maxAckPending?: number | false
  /** Where a queue that is made begins: as of a consumer, but `next` is the end. Default `{ kind: "first" }`. */
  readonly startAt?: StartAt
  /** Makes the queue when its first consumer is opened and it does not exist. Default true. */
  readonly createQueue?: boolean
  /**
   * Where messages go whose deliveries are used up, and those that are terminated: what `deadLetter(topic)` gives. Default: they are given
   * up, which consumers tell as `exhausted`.
   */
  readonly deadLetter?: DeadLetterPolicy
}

/** Queue options after the checks. */
export interface QueueSettings {
  /** What was given of what is kept with the queue. `maxAckPending` is there and undefined where there is to be no bound. */
  readonly given: Partial<QueueSpec>
  readonly createQueue: boolean
  readonly deadLetter: DeadLetterPolicy | undefined
}

const queueKeys = [
  "ackPolicy",
  "ackWaitMs",
  "backoffMs",
  "maxDeliver",
  "maxAckPending",
  "startAt",
  "createQueue",
  "deadLetter",
] as const

const mostWaits = 100
/** What says nothing where handing out settles. */
const settlingKeys = ["ackWaitMs", "backoffMs", "maxDeliver", "maxAckPending", "deadLetter"] as const

/** What a queue is made with where nothing else is said. @internal */
export const defaultSpec: QueueSpec = Object.freeze({
  ackWaitMs: 30_000,
  backoffMs: [],
  maxAckPending: 1000,
  ackPolicy: "explicit",
  startAt: { kind: "first" } as const,
})

/**
 * @param owner How errors call the queue.
 * @throws InvalidError for an unknown option, a value out of its range, or options that contradict each other
 */
export function checkQueueOptions(owner: string, options: QueueOptions | undefined): QueueSettings {
  const reader = new OptionReader<QueueOptions>(owner, options, queueKeys)
  const given: { -readonly [K in keyof QueueSpec]?: QueueSpec[K] } = {}
  const { backoffMs, maxAckPending, startAt } = options ?? {}
  if (options?.ackPolicy !== undefined) {
    given.ackPolicy = reader.choice("ackPolicy", ["none", "all", "explicit"], "explicit")
  }
  if (options?.ackWaitMs !== undefined) given.ackWaitMs = reader.duration("ackWaitMs", { fallback: 0 })
  if (backoffMs !== undefined) given.backoffMs = checkWaits(owner, backoffMs)
  if (options?.maxDeliver !== undefined) given.maxDeliver = reader.whole("maxDeliver", { min: 1, fallback: 1 })
  if (maxAckPending === false) given.maxAckPending = undefined as never
  else if (maxAckPending !== undefined) given.maxAckPending = reader.whole("maxAckPending", { min: 1, fallback: 1 })
  if (startAt !== undefined) given.startAt = queueStart(checkStartAt(owner, startAt))
  checkTogether(owner, options ?? {})
  return {
    given,
    createQueue: reader.flag("createQueue", true),
    deadLetter: checkDeadLetter(owner, options?.deadLetter),
  }
}

/** What a queue is made with: what was given over what it has, or over the defaults. */
export function specOf(given: Partial<QueueSpec>, present: QueueSpec | undefined): QueueSpec {
  const spec = { ...(present ?? defaultSpec), ...given }
  // Where handing out settles nothing is pending, unless it was said that there is a bound.
  const unbounded = spec.maxAckPending === undefined || (present === undefined && spec.ackPolicy === "none")
  const { maxAckPending: _, ...rest } = spec
  return unbounded ? rest : spec
}

function checkTogether(owner: string, options: QueueOptions): void {
  const { ackWaitMs, backoffMs, maxDeliver, ackPolicy } = options
  if (backoffMs !== undefined && backoffMs.length > 0 && ackWaitMs !== undefined) {
    throw new InvalidError(`${owner}: options "ackWaitMs" and "backoffMs" exclude each other: give one`)
  }
  if (maxDeliver !== undefined && backoffMs !== undefined && maxDeliver < backoffMs.length) {
    throw new InvalidError(
      `${owner}: option "maxDeliver" is ${maxDeliver}; it must not be below the ${backoffMs.length} waits of "backoffMs"`,
    )
  }
  if (ackPolicy !== "none") return
  const senseless = settlingKeys.find((key) => options[key] !== undefined && options[key] !== false)
  if (senseless === undefined) return
  throw new InvalidError(
    `${owner}: option "${senseless}" has no meaning with ackPolicy "none": what was handed out is settled`,
  )
}

function checkWaits(owner: string, waits: unknown): readonly number[] {
  if (!Array.isArray(waits) || waits.length > mostWaits) {
    throw new InvalidError(
      `${owner}: option "backoffMs" is ${shown(waits)}; it must be an array of at most ${mostWaits} waits`,
    )
  }
  return waits.map((wait, i) => {
    const name = `backoffMs[${i}]`
    return new OptionReader(owner, { [name]: wait as number }, [name]).duration(name, { fallback: 0 })
  })
}

function queueStart(startAt: StartAt): QueueStart {
  if (startAt.kind === "next") return { kind: "end" }
  return startAt as QueueStart
}

function checkDeadLetter(owner: string, value: unknown): DeadLetterPolicy | undefined {
  if (value === undefined || isDeadLetterPolicy(value)) return value
  throw new InvalidError(`${owner}: option "deadLetter" is ${shown(value)}; it must be what deadLetter(topic) gives`)
}
