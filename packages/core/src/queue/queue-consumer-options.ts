import { InvalidError, type QueueSpec } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { checkEncryptorChoice } from "../encryption/sealing.ts"

/** Options of `topic.queue(name).consumer`. */
export interface QueueConsumerOptions {
  /**
   * The most messages that are taken ahead of the callers, 0 to 10,000. Fewer are, as far as handlers are slow: what is taken ahead can be
   * handled within a quarter of its wait, and a consumer begins without. Default 256, or a quarter of the queue's `maxAckPending` when that
   * is less; always 0 under `ackPolicy` `"all"` and `"none"`.
   */
  readonly prefetch?: number
  /** The most bytes of one request, and of what is taken ahead; a first message above it comes alone. Default 4 MiB. */
  readonly maxBytes?: number
  /** Begins the wait of a message anew, at every third of it, while its handler runs. Default true. */
  readonly autoExtend?: boolean
  /**
   * For how long in all a handler keeps its message by that, in ms. Then it is handed out again, though the handler may still run: so a
   * handler that hangs holds no message for ever. Default ten times the wait.
   */
  readonly maxExtendMs?: number
  /** How long `processBatch` waits for more behind its first message, in ms. Default 50. */
  readonly batchTimeoutMs?: number
  /**
   * A message whose handler failed is naked, with a delay that grows. `false`: it comes again when its wait is over, which
   * `ackPolicy: "all"` does not allow. Default true.
   */
  readonly nakOnError?: boolean
  /** Acks behind a handler wait for the durability of the topic's offsets. Default false. */
  readonly confirmAcks?: boolean
  /** What records are decrypted with; `false` hands them out as they are stored. Default: the client's. */
  readonly encryptor?: Encryptor | false
  /** Calls that wait, and later ones, reject with CancelledError once it fires. The consumer stays open. */
  readonly signal?: AbortSignal
}

/** The options after the checks. */
export interface QueueConsumerSettings {
  readonly prefetch: number
  readonly maxBytes: number
  readonly autoExtend: boolean
  /** As a multiple of the wait when it was not given. */
  readonly maxExtendMs: number | undefined
  readonly batchTimeoutMs: number
  readonly nakOnError: boolean
  readonly confirmAcks: boolean
  readonly encryptor: Encryptor | false | undefined
  readonly signal: AbortSignal | undefined
}

const consumerKeys = [
  "prefetch",
  "maxBytes",
  "autoExtend",
  "maxExtendMs",
  "batchTimeoutMs",
  "nakOnError",
  "confirmAcks",
  "encryptor",
  "signal",
] as const

const mostAhead = 10_000
const usualAhead = 256
const mebibyte = 1_048_576

/** @throws InvalidError for an unknown option, a value out of its range, and `prefetch` where an ack settles what others wait for */
export function checkQueueConsumerOptions(
  owner: string,
  options: QueueConsumerOptions | undefined,
  spec: QueueSpec,
): QueueConsumerSettings {
  const reader = new OptionReader<QueueConsumerOptions>(owner, options, consumerKeys)
  const signal = options?.signal
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new InvalidError(`${owner}: option "signal" is ${shown(signal)}; it must be an AbortSignal`)
  }
  const explicit = spec.ackPolicy === "explicit"
  const fallback = explicit ? Math.min(usualAhead, Math.floor((spec.maxAckPending ?? mostAhead) / 4)) : 0
  const prefetch = reader.whole("prefetch", { min: 0, max: mostAhead, fallback })
  if (prefetch > 0 && !explicit) {
    throw new InvalidError(
      `${owner}: option "prefetch" is ${prefetch}; with ackPolicy "${spec.ackPolicy}" nothing can be taken ahead: what lies in the buffer would ${spec.ackPolicy === "all" ? "be covered by acks of others" : "be settled"}`,
    )
  }
  const nakOnError = reader.flag("nakOnError", true)
  if (!nakOnError && spec.ackPolicy === "all") {
    throw new InvalidError(
      `${owner}: option "nakOnError" is false; with ackPolicy "all" what failed has to go back: acks of what comes behind it would cover it`,
    )
  }
  return {
    prefetch,
    maxBytes: reader.whole("maxBytes", { min: 1, fallback: 4 * mebibyte }),
    autoExtend: reader.flag("autoExtend", true),
    maxExtendMs: reader.duration("maxExtendMs", { zero: true, fallback: undefined }),
    batchTimeoutMs: reader.duration("batchTimeoutMs", { zero: true, fallback: 50 }),
    nakOnError,
    confirmAcks: reader.flag("confirmAcks", false),
    encryptor: checkEncryptorChoice(owner, options?.encryptor),
    signal,
  }
}
