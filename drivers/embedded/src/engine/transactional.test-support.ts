/** For tests: transactions over an engine in this thread. */
import type { AppendResult, OffsetOwner, PreparedTransaction, StagedResult, TopicDescription } from "@millrace/contract"
import { errorFromWire, MillraceError } from "@millrace/contract"
import { verifyStore } from "../verify.ts"
import type { EngineFixture } from "./engine.test-support.ts"
import type { OffsetOutcome } from "./offsets.ts"
import type { Begun, Ended } from "./transactional.ts"
import type { TransactionRef } from "./transactional-id.ts"
import type { Initialised } from "./transactional-init.ts"

/** A record as tests write it: a text, or a text with an id of its own. */
export type Draft = string | { readonly text: string; readonly id: bigint }

/** One incarnation of a transactional id, and its present transaction. */
export class Incarnation {
  readonly prepared: string | undefined
  readonly #fixture: EngineFixture
  readonly #sequences = new Map<string, number>()
  ref: TransactionRef
  epoch: number

  constructor(
    fixture: EngineFixture,
    transactionalId: string,
    options: { readonly timeoutMs?: number; readonly keepPrepared?: boolean } = {},
  ) {
    const { timeoutMs = 60_000, keepPrepared = false } = options
    const { identity, prepared } = fixture.call<Initialised>("transactions.init", {
      transactionalId,
      timeoutMs,
      keepPrepared,
    })
    this.#fixture = fixture
    this.prepared = prepared
    this.ref = { producerId: identity.producerId, incarnation: identity.epoch, key: 0n }
    this.epoch = identity.epoch
  }

  /** A new transaction, as a session that knows that its last one has ended. */
  begin(): this {
    const { key, epoch } = this.#fixture.call<Begun>("transactions.begin", { ...this.ref, key: 0n })
    this.ref = { ...this.ref, key }
    this.epoch = epoch
    this.#sequences.clear()
    return this
  }

  /** Stages one batch, numbered unless `plain`. */
  stage(
    topic: TopicDescription,
    drafts: readonly Draft[],
    options: {
      readonly partition?: number
      readonly resend?: boolean
      readonly id?: bigint
      readonly sequence?: number
      readonly epoch?: number
      readonly plain?: boolean
    } = {},
  ): AppendResult {
    const { partition = 0 } = options
    const records = drafts.map((draft) =>
      typeof draft === "string" ? { payload: Buffer.from(draft) } : { payload: Buffer.from(draft.text), id: draft.id },
    )
    const batch = this.#fixture.batch(topic, records, options)
    const place = `${topic.lineage}/${partition}`
    const sequence = options.sequence ?? this.#sequences.get(place) ?? 0
    const identity = { producerId: this.ref.producerId, epoch: options.epoch ?? this.epoch, sequence }
    const { args } = this.#fixture.appendRequest(batch, options.plain === true ? undefined : identity)
    const answer = this.#fixture.call<AppendResult>("log.stage", { ...(args as object), transaction: this.ref })
    if (options.sequence === undefined) this.#sequences.set(place, sequence + drafts.length)
    batch.release()
    return answer
  }

  enlist(
    owner: OffsetOwner,
    topic: TopicDescription,
    offset: bigint,
    options: { readonly partition?: number; readonly claim?: number } = {},
  ): void {
    const { stream, topic: name, lineage } = topic
    const { partition = 0, claim } = options
    const entry = { stream, topic: name, partition, offset, lineage, ...(claim === undefined ? {} : { claim }) }
    this.#fixture.call("transactions.enlist", { transaction: this.ref, owner, entries: [entry] })
  }

  prepare(): string {
    return this.#fixture.call<string>("transactions.prepare", this.ref)
  }

  commit(durability: "synced" | "written" = "synced"): readonly StagedResult[] {
    const { results = [], lost } = this.#fixture.call<Ended>("transactions.commit", {
      transaction: this.ref,
      durability,
    })
    if (lost !== undefined) throw errorFromWire(lost)
    return results
  }

  abort(): void {
    this.#fixture.call("transactions.abort", { transaction: this.ref, durability: "written" })
  }

  complete(token: string, again = false): "committed" | "aborted" {
    const { end, lost } = this.#fixture.call<Ended>("transactions.complete", { transaction: this.ref, token, again })
    if (lost !== undefined) throw errorFromWire(lost)
    return end
  }

  close(): void {
    this.#fixture.call("transactions.close", this.ref)
  }
}

/** What readers see of a partition. */
export function texts(fixture: EngineFixture, topic: TopicDescription, partition = 0): string[] {
  return fixture
    .read(topic, 0n, { partition })
    .batches.flatMap((batch) =>
      Array.from({ length: batch.count }, (_, index) => Buffer.from(batch.payload(index) as Uint8Array).toString()),
    )
}

/** The next offset that is stored, or the error that asking gives. */
export function stored(
  fixture: EngineFixture,
  owner: OffsetOwner,
  topic: TopicDescription,
  partition = 0,
): bigint | undefined | MillraceError {
  const { stream, topic: name } = topic
  const [outcome] = fixture.call<OffsetOutcome<{ readonly offset: bigint } | undefined>[]>("offsets.load", {
    owner,
    partitions: [{ stream, topic: name, partition }],
  })
  if (outcome === undefined) throw new Error("no answer")
  return "error" in outcome ? errorFromWire(outcome.error) : outcome.value?.offset
}

/** Those that wait for their end. */
export function preparedIn(fixture: EngineFixture): PreparedTransaction[] {
  return fixture.call("transactions.list", undefined)
}

/** The error that something throws. */
export function errorOf(work: () => unknown): MillraceError {
  try {
    work()
  } catch (error) {
    if (error instanceof MillraceError) return error
    throw error
  }
  throw new Error("nothing was thrown")
}

/** What the offline check finds wrong; the store may be open. */
export function problemsOf(fixture: EngineFixture): readonly string[] {
  return verifyStore(fixture.path).problems
}

/** How many rows a table has. */
export function rowsOf(fixture: EngineFixture, table: string): number {
  return fixture.look(`SELECT count(*) AS n FROM ${table}`)[0]?.n as number
}
