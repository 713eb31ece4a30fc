import { InvalidError, type OffsetOwner } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { shown } from "../client/options.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import { DeadLetterSender } from "./dead-letter-sender.ts"
import type { Handler } from "./handler-context.ts"
import { HandlerRun } from "./handler-run.ts"
import type { FeedUser, MessageFeed } from "./message-feed.ts"
import { checkRunOptions, type RunOptions, type RunSettings } from "./run-options.ts"
import { storedRecord } from "./stored-record.ts"

/** The consumer that a run reads from. */
export interface RunningConsumer {
  readonly what: string
  readonly context: ClientContext
  readonly owner: OffsetOwner | undefined
  /** Of the consumer's options. */
  readonly encryptor: Encryptor | false | undefined
  /** @throws InvalidError when somebody else reads, ClosedError after the shutdown */
  feed(user: FeedUser): MessageFeed
  /** The shutdown, once it has begun. */
  closing(): Promise<void> | undefined
}

/** `consumer.run`. @throws InvalidError for the handler, an option, or while somebody else reads; else as `HandlerRun.over` */
export async function runHandler(
  consumer: RunningConsumer,
  handler: Handler,
  options: RunOptions | undefined,
): Promise<void> {
  const { what } = consumer
  if (typeof handler !== "function") {
    throw new InvalidError(`${what}: run takes a function that handles a message, not ${shown(handler)}`)
  }
  const run = newRun(consumer, handler, checkRunOptions(what, options))
  await run.over(consumer.feed(run))
  const closing = consumer.closing()
  if (closing === undefined) return
  // A shutdown tells its caller what it failed with; a handler that called it is not waiting any more.
  if (run.tellsShutdown) await closing
  else await closing.catch(() => {})
}

function newRun(consumer: RunningConsumer, handler: Handler, settings: RunSettings): HandlerRun {
  const { what, owner, context } = consumer
  const { clock, random, session } = context
  const { limits } = session.manifest
  const { onFailure } = settings
  const encryptor = consumer.encryptor ?? context.encryptor
  if (typeof onFailure !== "string") checkRoom(what, onFailure.encryptor ?? encryptor)
  const deadLetters =
    typeof onFailure === "string"
      ? undefined
      : new DeadLetterSender(onFailure, { what, clock, random, limits, encryptor })
  return new HandlerRun(handler, settings, {
    what,
    clock,
    random,
    consumer: owner?.kind === "consumer" ? owner.name : undefined,
    group: owner?.kind === "group" ? owner.name : undefined,
    stored: (position, needed) => storedRecord(session, position, needed),
    deadLetters,
  })
}

/** @throws InvalidError for an encryption that has no room for what a dead letter says of itself: better now than at the first failure */
export function checkRoom(what: string, encryptor: Encryptor | false | undefined): void {
  if (encryptor === undefined || encryptor === false || encryptor.format !== "iggy") return
  throw new InvalidError(
    `${what}: dead letters cannot be encrypted as Apache Iggy's clients do, which has no headers: give deadLetter(topic, { encryptor }) one of encryptor(), or false`,
  )
}
