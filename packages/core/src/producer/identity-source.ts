import { FencedError, type Identity, MillraceError, type PartitionLog, type TopicName } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { type AttemptSettings, attempt } from "../client/attempts.ts"
import { topicText } from "../client/names.ts"
import type { IdentityView } from "./sender-command.ts"

/** A partition that numbers its batches under the identity of a source. */
export interface IdentityUser {
  /** Batches with a number that have not settled. */
  readonly numbered: number
  /** The identity may be another one now. */
  wake(): void
}

/** Where the partitions of a producer get the identity that they number their batches under. */
export interface Identities extends IdentityView {
  /** The answer takes the user out again. */
  register(user: IdentityUser): () => void
  /** Something of a partition has settled. */
  noticeSettled(): void
  /** The present identity, or the first one. */
  acquire(topic: TopicName): Promise<Identity>
  /** What follows `spent`, which must not be used any more. */
  renew(topic: TopicName, spent: Identity, options: { readonly fenced: boolean }): Promise<Identity>
  /** Nothing new begins under the present identity. */
  spend(): void
}

/**
 * The producer identity that partitions share: acquired at the first need, raised to its next epoch when one of them cannot go on with
 * the present one. A backend may refuse the old epoch everywhere from then on, so it is raised only when no partition has anything
 * numbered on its way; until then nothing new is numbered. That wait is bounded by the retries and time-outs of what is on its way.
 */
export class IdentitySource implements Identities {
  readonly #log: PartitionLog
  readonly #clock: Clock
  readonly #settings: AttemptSettings
  readonly #signal: AbortSignal
  readonly #users = new Set<IdentityUser>()
  #current: Identity | undefined
  #spent: Identity | undefined
  #pending: Promise<Identity> | undefined
  /** Starts the renewal that waits for the partitions to settle. */
  #startRenewal: (() => void) | undefined
  #isRenewing = false

  constructor(
    log: PartitionLog,
    how: { readonly clock: Clock; readonly settings: AttemptSettings; readonly signal: AbortSignal },
  ) {
    this.#log = log
    this.#clock = how.clock
    this.#settings = how.settings
    this.#signal = how.signal
  }

  /** What partitions with nothing on its way should use from here on. */
  get current(): Identity | undefined {
    return this.#current
  }

  /** Nothing new is numbered until this is over. */
  get isRenewing(): boolean {
    return this.#isRenewing
  }

  /** The answer takes the user out again. */
  register(user: IdentityUser): () => void {
    this.#users.add(user)
    return () => {
      this.#users.delete(user)
      this.noticeSettled()
    }
  }

  /** Something of a partition has settled, so that a renewal may be able to start. */
  noticeSettled(): void {
    if (this.#startRenewal === undefined) return
    for (const user of this.#users) if (user.numbered > 0) return
    this.#startRenewal()
  }

  /** The present identity, or the first one, or what follows one that was spent. */
  acquire(topic: TopicName): Promise<Identity> {
    if (this.#current !== undefined) return Promise.resolve(this.#current)
    const spent = this.#spent
    return this.#share(() => (spent === undefined ? this.#fresh(topic) : this.#raise(topic, spent)))
  }

  /** What follows `spent`: the identity that others use by now, its next epoch, or a fresh one when it was fenced. */
  renew(topic: TopicName, spent: Identity, options: { readonly fenced: boolean }): Promise<Identity> {
    if (this.#current !== spent) return this.acquire(topic)
    return this.#share(() => (options.fenced ? this.#fresh(topic) : this.#raise(topic, spent)))
  }

  /** Nothing new begins under the present identity any more: sequences that start again at 0 could be taken for old ones. */
  spend(): void {
    this.#spent = this.#current ?? this.#spent
    this.#current = undefined
  }

  #share(request: () => Promise<Identity>): Promise<Identity> {
    this.#pending ??= request()
      .then((identity) => {
        this.#current = identity
        return identity
      })
      .finally(() => {
        this.#pending = undefined
        this.#isRenewing = false
        for (const user of this.#users) user.wake()
      })
    return this.#pending
  }

  #fresh(topic: TopicName): Promise<Identity> {
    return this.#attempt("acquiring a producer identity", topic, () => this.#log.identify(topic))
  }

  async #raise(topic: TopicName, spent: Identity): Promise<Identity> {
    this.#isRenewing = true
    await new Promise<void>((resolve) => {
      this.#startRenewal = resolve
      this.noticeSettled()
    })
    this.#startRenewal = undefined
    try {
      return await this.#attempt("raising the producer epoch", topic, () => this.#log.identify(topic, spent))
    } catch (error) {
      const unusable = error instanceof FencedError || (error instanceof MillraceError && error.kind === "sequence")
      if (!unusable) throw error
      return this.#fresh(topic)
    }
  }

  #attempt(what: string, topic: TopicName, request: () => Promise<Identity>): Promise<Identity> {
    const work = { what: `${what} for topic "${topicText(topic)}"`, request, signal: this.#signal }
    return attempt(this.#clock, this.#settings, work)
  }
}
