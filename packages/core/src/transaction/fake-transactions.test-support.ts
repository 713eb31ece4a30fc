/**
 * Transactions in memory, as the contract has them, over the fake log that is written and the fake log, group and offsets that are read; with
 * a fate for each question that a test decides on.
 */
import {
  type AppendOptions,
  type AppendResult,
  type Claim,
  ConnectionError,
  FencedError,
  type Identity,
  type Manifest,
  type MillraceError,
  NotAssignedError,
  NotFoundError,
  type OffsetEntry,
  type OffsetOwner,
  type PreparedTransaction,
  RecordTooLargeError,
  SequenceError,
  type Session,
  type StagedResult,
  TransactionAbortedError,
  type TransactionHandle,
  type TransactionSession,
  TransactionStateError,
  type Transactions,
} from "@millrace/contract"
import type { VirtualClock } from "@millrace/runtime"
import type { FakeClient } from "../consumer/fake-session.test-support.ts"
import { type FakeBackend, fakeManifest, type StoredRecord } from "../producer/fake-backend.test-support.ts"

/** `lose`: it happens, and the answer is an error of unknown outcome. `vanish`: so is the answer, and nothing happens. */
export interface TransactionFate {
  readonly outcome?: "do" | "refuse" | "lose" | "vanish" | "silence"
  readonly error?: MillraceError
  readonly delayMs?: number
}

export type Operation = "init" | "begin" | "append" | "enlist" | "prepare" | "commit" | "abort" | "complete" | "load"

interface Staged {
  readonly topic: string
  readonly partition: number
  readonly sequence: number
  readonly content: readonly StoredRecord[]
}

interface Open {
  readonly handle: TransactionHandle
  readonly identity: Identity
  readonly beganMs: number
  readonly staged: Staged[]
  readonly offsets: Map<string, { readonly owner: OffsetOwner; readonly entry: OffsetEntry }>
  state: "open" | "prepared" | "aborted" | "committed"
  why: string
  preparedMs: number
  results: StagedResult[] | undefined
}

interface Id {
  readonly producerId: bigint
  epoch: number
  timeoutMs: number
  open: Open | undefined
}

export const transactionalManifest: Manifest = {
  ...fakeManifest(),
  groups: { supported: true },
  staticMembers: { supported: true },
  transactions: { supported: true, partitions: "any", offsets: { supported: true }, prepare: { supported: true } },
}

export class FakeTransactions implements Transactions {
  readonly ids: Map<string, Id> = new Map()
  fate: (operation: Operation, nth: number) => TransactionFate = () => ({})
  /** How often each was asked for. */
  readonly asked: Map<Operation, number> = new Map()
  /** Whether each begin has an identity of its own, as the embedded log has it, or all of an incarnation share one. */
  freshEpochs = true
  readonly #clock: VirtualClock
  readonly #backend: FakeBackend
  readonly #input: FakeClient | undefined
  #token = 0

  constructor(clock: VirtualClock, backend: FakeBackend, input?: FakeClient) {
    this.#clock = clock
    this.#backend = backend
    this.#input = input
  }

  /** A session that writes to the backend's topics, in transactions or not, and reads what the input has. */
  session(manifest: Manifest = transactionalManifest): Session {
    const own = this.#backend.session
    const input = this.#input?.context.session
    const base = input ?? own
    return {
      ...base,
      manifest,
      catalog: {
        ...own.catalog,
        describeTopic: (name) => (name.topic === "t" && input ? input.catalog : own.catalog).describeTopic(name),
      },
      log: {
        keyHash: own.log.keyHash,
        writer: own.log.writer,
        identify: own.log.identify,
        append: (batch, options) => {
          if (options.transaction === undefined) return own.log.append(batch, options)
          return this.#ask("append", () =>
            this.#stage(batch as unknown as Parameters<FakeTransactions["stage"]>[0], options),
          )
        },
        openReader: (options) => base.log.openReader(options),
        locate: (queries) => base.log.locate(queries),
        watermarks: (places) => base.log.watermarks(places),
      },
      offsets: {
        ...base.offsets,
        load: (owner, places) => this.#ask("load", () => base.offsets.load(owner, places)),
        store: (owner, entries) => base.offsets.store(owner, entries),
        delete: (owner, entries) => base.offsets.delete(owner, entries),
      },
      transactions: this,
      close: async () => {
        await own.close()
      },
    }
  }

  async init(
    transactionalId: string,
    options: { readonly timeoutMs: number; readonly keepPrepared: boolean },
  ): Promise<TransactionSession> {
    return await this.#ask("init", () => {
      const id = this.ids.get(transactionalId) ?? {
        producerId: BigInt(this.ids.size + 1),
        epoch: -1,
        timeoutMs: options.timeoutMs,
        open: undefined,
      }
      this.ids.set(transactionalId, id)
      id.epoch++
      id.timeoutMs = options.timeoutMs
      const { open } = id
      if (open?.state === "open" || (open?.state === "prepared" && !options.keepPrepared))
        aborted(open, "a newer incarnation began")
      return this.#sessionOf(transactionalId, id)
    })
  }

  async list(): Promise<PreparedTransaction[]> {
    const nowMs = this.#clock.monotonicMs()
    return [...this.ids].flatMap(([transactionalId, { open }]) =>
      open?.state === "prepared"
        ? [{ transactionalId, token: tokenOf(open), ageMs: nowMs - open.preparedMs, records: countOf(open) }]
        : [],
    )
  }

  // ---- one incarnation ------------------------------------------------------------------------------------

  #sessionOf(transactionalId: string, id: Id): TransactionSession {
    let own = id.epoch
    let prepared = id.open?.state === "prepared" ? tokenOf(id.open) : undefined
    let closed = false
    const check = (): void => {
      if (closed) throw new TransactionStateError("the session is closed")
      if (id.epoch !== own) throw new FencedError(`epoch ${own} is old: epoch ${id.epoch} has taken over`)
      const { open } = id
      if (open?.state === "open" && this.#clock.monotonicMs() - open.beganMs > id.timeoutMs)
        aborted(open, "it took too long")
    }
    const live = (handle: TransactionHandle): Open => {
      check()
      const { open } = id
      if (open?.handle !== handle) throw new TransactionStateError("no such transaction")
      return open
    }
    return {
      get identity() {
        return { producerId: id.producerId, epoch: own }
      },
      get prepared() {
        return prepared
      },
      begin: () =>
        this.#ask("begin", () => {
          check()
          if (id.open?.state === "open" || id.open?.state === "prepared") throw new TransactionStateError("one is open")
          if (this.freshEpochs) own = ++id.epoch
          const handle = { transactionalId, token: ++this.#token }
          id.open = {
            handle,
            identity: { producerId: id.producerId, epoch: own },
            beganMs: this.#clock.monotonicMs(),
            staged: [],
            offsets: new Map(),
            state: "open",
            why: "",
            preparedMs: 0,
            results: undefined,
          }
          return handle
        }),
      enlistOffsets: (handle, owner, entries) =>
        this.#ask("enlist", () => {
          const open = live(handle)
          refuseEnded(open)
          for (const entry of entries) this.#checkClaim(entry.claim)
          for (const entry of entries) {
            open.offsets.set(`${owner.name}/${entry.topic}/${entry.partition}`, { owner, entry })
          }
        }),
      prepare: (handle) =>
        this.#ask("prepare", () => {
          const open = live(handle)
          refuseEnded(open)
          for (const { entry } of open.offsets.values()) this.#checkClaim(entry.claim)
          open.state = "prepared"
          open.preparedMs = this.#clock.monotonicMs()
          return tokenOf(open)
        }),
      commit: (handle) => this.#ask("commit", () => this.#commit(live(handle))),
      abort: (handle) =>
        this.#ask("abort", () => {
          const open = live(handle)
          if (open.state === "committed") throw new TransactionStateError("it is committed")
          aborted(open, "it was aborted")
        }),
      complete: (token) =>
        this.#ask("complete", () => {
          check()
          const { open } = id
          if (open === undefined || prepared === undefined) throw new TransactionStateError("nothing is prepared")
          if (token !== tokenOf(open)) {
            aborted(open, "it was completed with another token")
            prepared = undefined
            return "aborted" as const
          }
          void this.#commit(open)
          prepared = undefined
          return "committed" as const
        }),
      close: async () => {
        closed = true
        if (id.epoch === own && id.open?.state === "open") aborted(id.open, "its session was closed")
      },
    }
  }

  #commit(open: Open): readonly StagedResult[] {
    if (open.results !== undefined) return open.results
    if (open.state === "aborted") throw new TransactionAbortedError(`the transaction was aborted: ${open.why}`)
    if (open.state === "open") for (const { entry } of open.offsets.values()) this.#checkClaim(entry.claim)
    const results: StagedResult[] = []
    for (const { topic, partition, content } of open.staged) {
      if (!this.#backend.topics.has(topic)) {
        aborted(open, `topic "${topic}" is gone`)
        throw new TransactionAbortedError(open.why)
      }
      const records = this.#backend.records(topic, partition)
      const base = BigInt(records.length)
      records.push(...content)
      results.push({ stream: "s", topic, partition, base, contiguous: true, count: content.length, duplicates: 0 })
    }
    for (const { owner, entry } of open.offsets.values()) this.#input?.storeNext(owner, entry.offset, entry.partition)
    open.state = "committed"
    open.results = results
    return results
  }

  /** Only for its parameter's type. */
  declare readonly stage: (batch: {
    topic: { topic: string; lineage: string }
    partition: number
    content: StoredRecord[]
  }) => void

  #stage(batch: Parameters<FakeTransactions["stage"]>[0], { identity, transaction }: AppendOptions): AppendResult {
    const id = this.ids.get((transaction as TransactionHandle).transactionalId)
    const open = id?.open
    if (open === undefined || open.handle !== transaction) throw new FencedError("no such transaction")
    if (identity === undefined || identity.epoch !== id?.epoch) throw new FencedError(`epoch ${identity?.epoch} is old`)
    if (this.#clock.monotonicMs() - open.beganMs > id.timeoutMs) aborted(open, "it took too long")
    refuseEnded(open)
    const { topic, lineage } = batch.topic
    const known = this.#backend.topics.get(topic)
    if (known === undefined || known.description.lineage !== lineage)
      throw new NotFoundError(`topic "${topic}" is gone`)
    const limitBytes = this.#backend.largestPayloadBytes
    if (batch.content.some(({ payload }) => (payload?.length ?? 0) > limitBytes)) {
      throw new RecordTooLargeError(`a record has more than ${limitBytes} bytes`)
    }
    const own = open.staged.filter((one) => one.topic === topic && one.partition === batch.partition)
    if (own.some(({ sequence }) => sequence === identity.sequence)) return { contiguous: false, duplicates: 0 }
    const last = own.at(-1)
    if (last !== undefined && last.sequence + last.content.length !== identity.sequence) {
      throw new SequenceError(`sequence ${identity.sequence} does not follow`)
    }
    if (last === undefined && this.freshEpochs && identity.sequence !== 0)
      throw new SequenceError("sequences begin at 0")
    open.staged.push({ topic, partition: batch.partition, sequence: identity.sequence, content: [...batch.content] })
    return { contiguous: false, duplicates: 0 }
  }

  #checkClaim(claim: Claim | undefined): void {
    if (claim !== undefined && this.#input?.offsets.void.has(claim.token) === true) {
      throw new NotAssignedError(`partition ${claim.partition} is another member's`)
    }
  }

  async #ask<T>(operation: Operation, work: () => T | Promise<T>): Promise<T> {
    const nth = this.asked.get(operation) ?? 0
    this.asked.set(operation, nth + 1)
    const { outcome = "do", error, delayMs } = this.fate(operation, nth)
    if (delayMs === undefined) await Promise.resolve()
    else await new Promise<void>((resolve) => void this.#clock.setTimer(delayMs, resolve))
    if (outcome === "refuse") throw error ?? new ConnectionError("refused before it was sent")
    if (outcome === "vanish") throw error ?? lost()
    const answer = await work()
    if (outcome === "lose") throw error ?? lost()
    if (outcome === "silence") return await new Promise<never>(() => {})
    return answer
  }
}

function aborted(open: Open, why: string): void {
  if (open.state === "aborted") return
  open.state = "aborted"
  open.why = why
  open.staged.length = 0
  open.offsets.clear()
}

function refuseEnded(open: Open): void {
  if (open.state === "aborted") throw new TransactionAbortedError(`the transaction was aborted: ${open.why}`)
  if (open.state !== "open") throw new TransactionStateError(`the transaction is ${open.state}`)
}

function tokenOf({ identity }: Open): string {
  return `${identity.producerId}:${identity.epoch}`
}

function countOf({ staged }: Open): number {
  return staged.reduce((sum, { content }) => sum + content.length, 0)
}

function lost(): ConnectionError {
  return new ConnectionError("the connection was lost", { outcome: "unknown" })
}
