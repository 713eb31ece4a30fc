import type { MillraceError } from "@millrace/contract"
import type { PublishFailedError, SendResult } from "@millrace/core"

/** Who sends: what one lane sends has, in each partition, the order of its calls. */
export interface Lane {
  readonly id: number
  /** As the trace calls it: `direct`, `background`, `client` … */
  readonly kind: string
  /** Whether the lane's own resends are recognised by the backend's sequences, where these are what it recognises by. */
  readonly isIdempotent: boolean
  /** Whether its records have the order of its calls. */
  readonly isOrdered: boolean
  /** Whether only records of one key have it, since a restart gives those in balance to other partitions. */
  readonly isOrderedByKey: boolean
  /** How many senders of each partition it has. */
  readonly shards: number
  /** Most records of one request of a call. */
  readonly requestLength: number
  /** Whether it sends again what the backend may not recognise any more. */
  readonly mayExpire: boolean
  /** Whether it gives up what may be stored sooner than to send it again unrecognised. */
  readonly failsUnknown: boolean
  /** Whether what it accepts lies on a disk, and outlives its process. */
  readonly isSpooled: boolean
}

/** One record that the program handed over. Its number is its payload's first four bytes. */
export interface RecordFact {
  readonly number: number
  readonly lane: Lane
  readonly topic: string
  readonly bytes: number
  /** Its key or partition in words; empty in balance. */
  route: string
  /** The call that it was first part of. */
  readonly call: CallFact
  /** When the last batch that it was in was released: a place in the order of all that happened; 0 while none was. */
  releasedAt: number
  /** A failure of it was told apart from its call. */
  isRefused: boolean
  /** A later call that sent it again after a failure. */
  resend: CallFact | undefined
}

/** One call of the program, and how it ended. */
export interface CallFact {
  readonly id: number
  readonly lane: Lane
  readonly topic: string
  readonly records: readonly RecordFact[]
  readonly startedMs: number
  /** It sends records of a failed call again: with the ids of their attempts, or as new ones. */
  readonly isResend: boolean
  readonly keepsIds: boolean
  /** The least that the ending of the call says: records are stored (`confirmed`) or only taken over (`accepted`). */
  readonly promises: "confirmed" | "accepted"
  /** It has a handle: a failure that comes before anybody looks there is told elsewhere too. */
  hasHandle: boolean
  /** Its process was killed before it ended: nobody knows. */
  isCut: boolean
  state: "open" | "done" | "failed"
  settlements: number
  settledMs: number
  /** The same as a place in the order of all that happened. */
  settledAt: number
  result: SendResult | undefined
  error: MillraceError | undefined
}

/** A failure that reached the program apart from the call that it belongs to: by `onError` or at shutdown. */
export interface FailureFact {
  readonly lane: Lane
  readonly error: PublishFailedError
  readonly atMs: number
  /** Its process was killed before everything of it was written down: the next one may tell it again, or deliver its records. */
  mayReturn: boolean
}

/** A flush, and what had been called before it. */
export interface FlushFact {
  readonly lane: Lane
  /** Calls with a smaller id came before. */
  readonly before: number
  /** Not a number while it has not ended. */
  endedMs: number
  /** It failed, or its process has ended before. */
  isCut: boolean
}

/** All that the program did and heard. */
export class ProgramHistory {
  readonly calls: CallFact[] = []
  readonly records: RecordFact[] = []
  readonly failures: FailureFact[] = []
  readonly flushes: FlushFact[] = []
  readonly lanes: Lane[] = []
  /** Numbers of the records that lie among the refused ones of a spool in the end. */
  readonly aside: number[] = []
  /** How many records of a spool were said to be possibly doubled. */
  possiblyDoubled = 0
  #now = 0

  /** The next place in the order of all that happens. */
  get now(): number {
    return ++this.#now
  }

  addLane(kind: string, traits: Partial<Omit<Lane, "id" | "kind">> = {}): Lane {
    const lane = {
      id: this.lanes.length,
      kind,
      isIdempotent: true,
      isOrdered: true,
      shards: 1,
      requestLength: 1000,
      mayExpire: false,
      failsUnknown: false,
      isSpooled: false,
      isOrderedByKey: false,
      ...traits,
    }
    this.lanes.push(lane)
    return lane
  }

  /** A call with new records of these payload sizes. */
  addCall(
    lane: Lane,
    to: { readonly topic: string; readonly startedMs: number; readonly promises: CallFact["promises"] },
    sizes: readonly number[],
  ): CallFact {
    const records: RecordFact[] = []
    const call = this.#open(lane, { ...to, records, isResend: false, keepsIds: true })
    for (const bytes of sizes) {
      const record = {
        number: this.records.length,
        lane,
        topic: to.topic,
        bytes,
        route: "",
        call,
        releasedAt: 0,
        isRefused: false,
        resend: undefined,
      }
      records.push(record)
      this.records.push(record)
    }
    return call
  }

  /** A call that sends records again. */
  addResend(
    lane: Lane,
    to: Pick<CallFact, "topic" | "startedMs" | "promises" | "keepsIds">,
    records: readonly RecordFact[],
  ): CallFact {
    const call = this.#open(lane, { ...to, records, isResend: true })
    for (const record of records) record.resend = call
    return call
  }

  #open(
    lane: Lane,
    parts: Pick<CallFact, "topic" | "startedMs" | "promises" | "records" | "isResend" | "keepsIds">,
  ): CallFact {
    const call: CallFact = {
      id: this.calls.length,
      lane,
      ...parts,
      hasHandle: false,
      isCut: false,
      state: "open",
      settlements: 0,
      settledMs: Number.NaN,
      settledAt: 0,
      result: undefined,
      error: undefined,
    }
    this.calls.push(call)
    return call
  }
}

/** The payload of a record: its number, and as many bytes as it is said to have, at least 4. */
export function payloadOf({ number, bytes }: RecordFact): Uint8Array {
  const payload = new Uint8Array(Math.max(4, bytes))
  new DataView(payload.buffer).setUint32(0, number)
  return payload
}

/** The number in a payload, −1 without one. */
export function numberIn(payload: Uint8Array | null): number {
  if (payload === null || payload.length < 4) return -1
  const [a = 0, b = 0, c = 0, d = 0] = payload
  return ((a << 24) | (b << 16) | (c << 8) | d) >>> 0
}
