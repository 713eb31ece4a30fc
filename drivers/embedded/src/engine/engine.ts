/**
 * The engine of one session: takes requests, answers reads at once, lets writes share commits, keeps waits until there is something,
 * and tidies up when it has nothing else to do. Everything that it does to the store is synchronous; between two steps it holds no
 * lock and no transaction.
 */
import { ClosedError, errorToWire, InvalidError } from "@millrace/contract"
import type { Clock, Random, Timer } from "@millrace/runtime"
import { CatalogCache } from "./catalog-cache.ts"
import { Checkpoints } from "./checkpoint.ts"
import type { Change, Command, ReadCommand, WaitCommand } from "./command.ts"
import { type ProcessTable, systemProcesses } from "./group-process.ts"
import { Housekeeping } from "./housekeeping.ts"
import { LockTurns } from "./lock-turns.ts"
import { Readers } from "./readers.ts"
import type { Answer, EngineReply, EngineRequest } from "./request.ts"
import { commandRegistry, storeSchemas } from "./rooms.ts"
import { Segments } from "./segments.ts"
import { storageError } from "./storage-error.ts"
import { Store } from "./store.ts"
import type { StoreDirectory } from "./store-directory.ts"
import { type EngineParts, Transaction } from "./transaction.ts"
import { TransactionalMemory } from "./transactional-memory.ts"
import { type Waiting, Waits } from "./waits.ts"
import { WriteQueue } from "./write-queue.ts"

/** A write that others keep from the lock for longer fails, having changed nothing. */
const defaultLockBoundMs = 10_000

/** How often an engine without a wake-up looks whether others have changed something, and tidies up. */
const tickMs = 1000

const everything: ReadonlySet<Change> = new Set(["appends", "groups", "queues", "state"])

/** What an engine takes from outside: time, chance, and where its answers go. */
export interface EngineOptions {
  readonly clock: Clock
  readonly random: Random
  /** False: nothing is ever synced (`memory:`). */
  readonly sync: boolean
  readonly answer: Answer
  /** How long a write waits for the lock of other processes before it fails as rejected. Default 10,000. */
  readonly lockBoundMs?: number
  /** Which processes still run. Default: what the system says. */
  readonly processes?: ProcessTable
  /** Called after a commit that those who wait in other sessions may want to see. */
  readonly changed?: () => void
  /** Called when the first command begins to wait. */
  readonly waiting?: () => void
}

/** One engine on one store, for one thread. */
export class Engine {
  readonly #options: EngineOptions
  readonly #parts: EngineParts
  readonly #commands: ReadonlyMap<string, Command>
  readonly #waits = new Waits()
  readonly #writes: WriteQueue
  readonly #checkpoints: Checkpoints
  readonly #turns: LockTurns
  readonly #housekeeping: Housekeeping
  #seenVersion = 0n
  #alarm: Timer | undefined
  #alarmMs = Number.POSITIVE_INFINITY
  #tick: Timer | undefined
  #closed = false

  /** Opens the store. @throws as `Store.open` */
  constructor(directory: StoreDirectory, options: EngineOptions) {
    const { clock, random, sync } = options
    this.#options = options
    const store = Store.open(directory, { clock, random, sync, schemas: storeSchemas })
    this.#parts = {
      store,
      clock,
      random,
      catalog: new CatalogCache(),
      segments: new Segments(store),
      transactional: new TransactionalMemory(options.processes ?? systemProcesses()),
    }
    this.#commands = commandRegistry(new Readers())
    this.#turns = new LockTurns(directory.waiting, random)
    this.#checkpoints = new Checkpoints(store, this.#turns, clock)
    this.#housekeeping = new Housekeeping(this.#parts)
    this.#writes = new WriteQueue(this.#parts, {
      turns: this.#turns,
      checkpoints: this.#checkpoints,
      lockBoundMs: options.lockBoundMs ?? defaultLockBoundMs,
      answer: options.answer,
      committed: (transaction) => this.#tell(transaction),
    })
    this.#seenVersion = store.dataVersion()
    this.#setTick()
  }

  /** Commands that wait now. */
  get waiting(): number {
    return this.#waits.size
  }

  /** Takes requests that came together. Reads are answered first, since writes wait for the disk. */
  submit(requests: readonly EngineRequest[]): void {
    const reads: { request: EngineRequest; command: ReadCommand | WaitCommand }[] = []
    for (const request of requests) {
      const command = this.#commands.get(request.name)
      if (this.#closed) this.#refuse(request, new ClosedError("the session is closed"))
      else if (command === undefined) this.#refuse(request, new InvalidError(`there is no command ${request.name}`))
      else if (command.mode === "write") this.#writes.add(request, command)
      else reads.push({ request, command })
    }
    if (reads.length > 0) this.#read(reads)
    this.#writes.pump()
  }

  /** Takes a waiting command back; it is not answered any more. */
  cancel(id: number): void {
    this.#waits.remove(id)
  }

  /** Another session or process may have changed something. */
  lookAgain(): void {
    if (this.#closed || this.#waits.size === 0) return
    if (!this.#hasOthersNews()) return
    this.#recheck(this.#waits.concerned(everything), false)
    this.#setAlarm()
  }

  /** Fails what is queued, answers what waits, and closes the store. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    for (const timer of [this.#alarm, this.#tick]) timer?.cancel()
    const closed = new ClosedError("the session is closed")
    this.#writes.close(closed)
    for (const { request } of this.#waits.all()) this.#refuse(request, closed)
    this.#turns.close()
    this.#parts.segments.close()
    this.#parts.store.close()
  }

  /** When the store cannot say, those who wait look for themselves and get the error. */
  #hasOthersNews(): boolean {
    try {
      const version = this.#parts.store.dataVersion()
      const news = version !== this.#seenVersion
      this.#seenVersion = version
      return news
    } catch {
      return true
    }
  }

  #read(reads: readonly { readonly request: EngineRequest; readonly command: ReadCommand | WaitCommand }[]): void {
    const rechecks = new Set<Change>()
    const replies: EngineReply[] = []
    const transfer: ArrayBuffer[] = []
    this.#inSnapshot(
      (transaction) => {
        for (const { request, command } of reads) {
          if (command.mode === "read" && command.rechecks !== undefined) rechecks.add(command.rechecks)
          const reply = this.#runRead(transaction, request, command)
          if (reply === undefined) continue
          replies.push(reply)
          transfer.push(...transaction.transfer)
        }
      },
      (error) => {
        for (const { request } of reads) replies.push({ id: request.id, error: errorToWire(error) })
      },
    )
    if (replies.length > 0) this.#options.answer(replies, transfer)
    if (rechecks.size > 0) this.#recheck(this.#waits.concerned(rechecks), false)
    this.#setAlarm()
  }

  /** The answer of a read; none when the command waits from now on. */
  #runRead(
    transaction: Transaction,
    request: EngineRequest,
    command: ReadCommand | WaitCommand,
  ): EngineReply | undefined {
    transaction.transfer = []
    const { id, args } = request
    try {
      if (command.mode === "read") return { id, value: command.run(transaction, args) }
      const maxWaitMs = command.maxWaitMs(args)
      const value = command.run(transaction, args, maxWaitMs <= 0)
      if (value !== undefined) return { id, value }
      if (this.#waits.size === 0) this.#options.waiting?.()
      this.#waits.add({ request, command, deadlineMs: transaction.monotonicMs + maxWaitMs })
      return undefined
    } catch (error) {
      transaction.transfer = []
      return { id, error: errorToWire(storageError(error, request.name)) }
    }
  }

  /** Runs waiting commands again; `over`: they must answer now. */
  #recheck(waitings: readonly Waiting[], over: boolean): void {
    if (waitings.length === 0) return
    const replies: EngineReply[] = []
    const transfer: ArrayBuffer[] = []
    this.#inSnapshot(
      (transaction) => {
        for (const { request, command } of waitings) {
          const { id, args } = request
          transaction.transfer = []
          try {
            const value = command.run(transaction, args, over)
            if (value === undefined && !over) continue
            replies.push({ id, value })
            transfer.push(...transaction.transfer)
          } catch (error) {
            replies.push({ id, error: errorToWire(storageError(error, request.name)) })
          }
          this.#waits.remove(id)
        }
      },
      (error) => {
        for (const { request } of waitings) {
          this.#waits.remove(request.id)
          replies.push({ id: request.id, error: errorToWire(error) })
        }
      },
    )
    if (replies.length > 0) this.#options.answer(replies, transfer)
  }

  #inSnapshot(run: (transaction: Transaction) => void, failed: (error: unknown) => void): void {
    const { store } = this.#parts
    try {
      store.read(() => run(new Transaction(this.#parts)))
    } catch (error) {
      failed(storageError(error, "reading the store"))
    }
  }

  #tell(transaction: Transaction): void {
    const { changes, appended, catalogTouched } = transaction
    if (changes.size > 0) {
      this.#options.changed?.()
      this.#recheck(this.#waits.concerned(changes, catalogTouched ? undefined : appended), false)
    }
    // Also without a change: what this commit handed out may be over before anything else happens.
    if (changes.size > 0 || this.#waits.size > 0) this.#setAlarm()
  }

  #refuse({ id }: EngineRequest, error: unknown): void {
    this.#options.answer([{ id, error: errorToWire(storageError(error, "the request")) }], [])
  }

  /** A timer for the first deadline of those that wait. */
  #setAlarm(): void {
    const next = this.#waits.nextDeadlineMs()
    if (next === this.#alarmMs) return
    this.#alarm?.cancel()
    this.#alarm = undefined
    this.#alarmMs = next
    if (next === Number.POSITIVE_INFINITY) return
    const { clock } = this.#parts
    this.#alarm = clock.setTimer(Math.max(0, next - clock.monotonicMs()), () => {
      this.#alarmMs = Number.POSITIVE_INFINITY
      this.#alarm = undefined
      const now = clock.monotonicMs()
      this.#recheck(this.#waits.due(now), false)
      this.#recheck(this.#waits.overdue(now), true)
      this.#setAlarm()
    })
  }

  #setTick(delayMs: number = tickMs): void {
    this.#tick = this.#parts.clock.setTimer(delayMs, () => this.#onTick(), { background: true })
  }

  #onTick(): void {
    this.lookAgain()
    let more = false
    if (this.#writes.isEmpty) {
      more = this.#housekeeping.step(() => this.#tryLockIdle())
      this.#checkpoints.idle()
    }
    this.#setTick(more ? 1 : tickMs)
  }

  #tryLockIdle(): boolean {
    this.#parts.store.setDurability("synced")
    return this.#parts.store.tryBegin()
  }
}
