/**
 * The books of one incremental fetch session (KIP-227): what the broker knows of our partitions, so that a request tells only what
 * changed. Pure.
 */
import type { FetchPartition, FetchRequestForgottenTopic, FetchTopic } from "../protocol/messages.generated.ts"

/** A partition as it is to be fetched now. */
export interface FetchTarget {
  readonly topic: string
  readonly topicId: string
  readonly partition: number
  readonly leaderEpoch: number
  readonly offset: bigint
}

/** The part of a fetch request that speaks of the session. */
export interface SessionRequest {
  readonly sessionId: number
  /** 0 begins a session, −1 is a request without one. */
  readonly sessionEpoch: number
  readonly topics: readonly FetchTopic[]
  readonly forgottenTopicsData: readonly FetchRequestForgottenTopic[]
}

const newSession = 0
const noSession = -1
const largestEpoch = 0x7fffffff

export class FetchSession {
  /** The id that the broker gave; 0 while there is none. */
  #id = 0
  #nextEpoch = newSession
  #known = new Map<string, FetchTarget>()

  /**
   * The request for exactly these partitions. To be sent before `plan` is called again; then `answered`, or `broken` when there was no
   * answer.
   */
  plan(targets: Iterable<FetchTarget>, partitionMaxBytes: number): SessionRequest {
    const full = this.#nextEpoch === newSession
    const wanted = new Map<string, FetchTarget>()
    const told: FetchTarget[] = []
    for (const target of targets) {
      const key = keyOf(target)
      wanted.set(key, target)
      const known = full ? undefined : this.#known.get(key)
      if (known === undefined || known.offset !== target.offset || known.leaderEpoch !== target.leaderEpoch) {
        told.push(target)
      }
    }
    const forgotten: FetchTarget[] = []
    if (!full) for (const [key, target] of this.#known) if (!wanted.has(key)) forgotten.push(target)
    this.#known = wanted
    return {
      sessionId: this.#id,
      sessionEpoch: this.#nextEpoch,
      topics: byTopic(told, (target) => toPartition(target, partitionMaxBytes)),
      forgottenTopicsData: byTopic(forgotten, (target) => target.partition),
    }
  }

  /** The broker answered, and this is the session's id in the answer: 0 when it keeps no session. */
  answered(sessionId: number): void {
    this.#id = sessionId
    if (sessionId === 0) this.#nextEpoch = newSession
    else this.#nextEpoch = this.#nextEpoch === largestEpoch ? 1 : this.#nextEpoch + 1
  }

  /** The broker may have another view, or none: the next request begins a new session in place of this one. */
  broken(): void {
    this.#nextEpoch = newSession
  }

  /** The broker does not know the session. */
  lost(): void {
    this.#id = 0
    this.#nextEpoch = newSession
  }
}

/** A request for these partitions that neither uses nor makes a session. */
export function sessionless(targets: Iterable<FetchTarget>, partitionMaxBytes: number): SessionRequest {
  const topics = byTopic([...targets], (target) => toPartition(target, partitionMaxBytes))
  return { sessionId: 0, sessionEpoch: noSession, topics, forgottenTopicsData: [] }
}

function toPartition(target: FetchTarget, partitionMaxBytes: number): FetchPartition {
  return {
    partition: target.partition,
    currentLeaderEpoch: target.leaderEpoch,
    fetchOffset: target.offset,
    partitionMaxBytes,
  }
}

function byTopic<P>(
  targets: readonly FetchTarget[],
  part: (target: FetchTarget) => P,
): { readonly topic: string; readonly topicId: string; readonly partitions: readonly P[] }[] {
  const topics = new Map<string, { topic: string; topicId: string; partitions: P[] }>()
  for (const target of targets) {
    const key = `${target.topicId}/${target.topic}`
    let entry = topics.get(key)
    if (entry === undefined) {
      entry = { topic: target.topic, topicId: target.topicId, partitions: [] }
      topics.set(key, entry)
    }
    entry.partitions.push(part(target))
  }
  return [...topics.values()]
}

/** A recreated topic is another one: its id differs. */
function keyOf(target: FetchTarget): string {
  return `${target.topicId}/${target.topic}/${target.partition}`
}
