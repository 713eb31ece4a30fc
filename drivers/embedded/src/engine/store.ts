import { statSync } from "node:fs"
import { DatabaseSync, type StatementSync } from "node:sqlite"
import { CorruptionError, type Durability, StorageError } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { LockWait } from "./lock-wait.ts"
import { applicationId, catalogTables, storeFormat } from "./schema.ts"
import { storageError } from "./storage-error.ts"
import type { StoreDirectory } from "./store-directory.ts"

/** How long opening may wait for locks of others: a first opening elsewhere, a recovery after a crash. */
const openLockMs = 15_000

/** How long a read may wait: readers meet a lock only while somebody recovers the log or closes the store as the last one. */
const readLockMs = 15_000

/** SQLite's page cache of a session. */
const cacheKib = 4096

/** Small rows change a page each, so small pages write less. */
const pageBytes = 4096

/** The write-ahead log is cut to this when it starts over; below it the file is reused as it is. */
const walKeptBytes = 16 << 20

/** How often a writer that holds the others off looks whether somebody else has done copying: half a second or more. */
const mostCopyTries = 2000

/** Statements that are kept prepared. */
const mostStatements = 500

/** What a store takes from outside. */
export interface StoreOptions {
  readonly clock: Clock
  readonly random: Random
  /** False: nothing is ever synced (`memory:`). */
  readonly sync: boolean
  /** What each format added, the first one first: `CREATE` statements of all rooms. */
  readonly schemas: readonly string[]
}

/** One connection to the database of a store, for one thread. Knows transactions and locks, and nothing of what is stored. */
export class Store {
  readonly directory: StoreDirectory
  readonly locks: LockWait
  readonly synced: boolean
  readonly #db: DatabaseSync
  readonly #statements = new Map<string, StatementSync>()
  #synchronous: string

  /**
   * Opens a store, and makes one where there is none. Openers may race.
   * @throws StorageError for a store of a newer format, CorruptionError for a file that is no store, PermissionError, DiskFullError,
   *   TimeoutError when others hold their locks too long
   */
  static open(directory: StoreDirectory, options: StoreOptions): Store {
    if (directory.marked && directory.hasNoDatabase) throw lostDatabase(directory)
    const locks = new LockWait(options.clock, options.random)
    let store: Store | undefined
    try {
      store = new Store(directory, locks, options.sync)
      store.#prepare(options)
      return store
    } catch (error) {
      store?.close()
      throw storageError(error, `opening the store at ${JSON.stringify(directory.path)}`)
    }
  }

  private constructor(directory: StoreDirectory, locks: LockWait, synced: boolean) {
    this.directory = directory
    this.locks = locks
    this.synced = synced
    this.#synchronous = ""
    this.#db = new DatabaseSync(directory.database, { enableForeignKeyConstraints: false })
  }

  /** The prepared statement of a text. Every INTEGER that it reads is a bigint. */
  statement(sql: string): StatementSync {
    let statement = this.#statements.get(sql)
    if (statement === undefined) {
      if (this.#statements.size >= mostStatements) this.#statements.clear()
      statement = this.#db.prepare(sql)
      statement.setReadBigInts(true)
      this.#statements.set(sql, statement)
    }
    return statement
  }

  /** Whether commits sync from here on. Outside of transactions only. */
  setDurability(durability: Durability): void {
    const wanted = !this.synced ? "OFF" : durability === "synced" ? "FULL" : "NORMAL"
    if (wanted === this.#synchronous) return
    this.#db.exec(`PRAGMA synchronous=${wanted}`)
    this.#synchronous = wanted
  }

  /** Runs a function in a read transaction: all that it sees is one snapshot. */
  read<T>(run: () => T): T {
    this.locks.whileBusy(() => this.#beginRead(), readLockMs, "reading")
    try {
      return run()
    } finally {
      this.#end("COMMIT")
    }
  }

  /** Begins a write transaction, or answers false when another connection writes. */
  tryBegin(): boolean {
    return this.locks.attempt(() => this.statement("BEGIN IMMEDIATE").run()) !== undefined
  }

  /** @throws what SQLite says; then nothing was committed that others can see, and the transaction is over. */
  commit(): void {
    try {
      this.statement("COMMIT").run()
    } catch (error) {
      this.rollback()
      throw error
    }
  }

  /** Ends a transaction without a trace; one that SQLite has ended by itself is over already. */
  rollback(): void {
    this.#end("ROLLBACK")
  }

  savepoint(): void {
    this.statement("SAVEPOINT command").run()
  }

  releaseSavepoint(): void {
    this.statement("RELEASE command").run()
  }

  rollbackToSavepoint(): void {
    this.statement("ROLLBACK TO command").run()
    this.statement("RELEASE command").run()
  }

  /** A number that differs when another connection has committed since the last call. */
  dataVersion(): bigint {
    return this.locks.whileBusy(
      () => this.statement("PRAGMA data_version").get()?.data_version as bigint,
      readLockMs,
      "reading",
    )
  }

  /**
   * Copies the write-ahead log into the database as far as it can without waiting for anybody. Outside of transactions only.
   * @returns the length of the log in pages; `undefined` when another connection is copying.
   */
  checkpoint(): number | undefined {
    const row = this.statement("PRAGMA wal_checkpoint(PASSIVE)").get()
    return row?.busy === 0n ? Math.max(0, Number(row.log)) : undefined
  }

  /** The size of the write-ahead log's file, which is cut when the log begins anew. */
  get walBytes(): number {
    return statSync(`${this.directory.database}-wal`, { throwIfNoEntry: false })?.size ?? 0
  }

  /**
   * The same inside a write transaction that has changed nothing, which ends with it: nobody can write meanwhile, so all is copied. A
   * connection cannot do that in its own transaction, so another one does. (SQLite's RESTART would copy and sync at each try for the
   * lock.) Where somebody else is copying, it waits for that: nobody adds to what is left.
   */
  checkpointHeld(): void {
    try {
      const other = new DatabaseSync(this.directory.database, { enableForeignKeyConstraints: false })
      try {
        other.exec(`PRAGMA synchronous=${this.synced ? "FULL" : "OFF"}`)
        const copy = other.prepare("PRAGMA wal_checkpoint(PASSIVE)")
        for (let tries = 0; copy.get()?.busy !== 0 && tries < mostCopyTries; tries++) this.locks.pause()
      } finally {
        other.close()
      }
    } finally {
      this.rollback()
    }
  }

  /** Closing as the last one copies the write-ahead log and removes it. */
  close(): void {
    this.#statements.clear()
    try {
      this.#db.close()
    } catch (error) {
      throw storageError(error, "closing the store")
    }
  }

  #beginRead(): void {
    this.statement("BEGIN").run()
    try {
      // A transaction takes its snapshot with the first read: take it here, where a lock is waited for.
      this.statement("SELECT 1 FROM store_value WHERE name = 'catalog'").get()
    } catch (error) {
      this.#end("ROLLBACK")
      throw error
    }
  }

  #end(how: "COMMIT" | "ROLLBACK"): void {
    try {
      this.statement(how).run()
    } catch (error) {
      // SQLite ends a transaction by itself after a full disk or an I/O error: "no transaction is active" then (code 1).
      if ((error as { errcode?: number }).errcode !== 1) throw error
    }
  }

  #prepare({ schemas }: StoreOptions): void {
    const wait = <T>(action: () => T): T => this.locks.whileBusy(action, openLockMs, "opening")
    const format = wait(() => this.#format())
    if (format === 0) {
      // The page size counts only before the first page is written.
      wait(() => this.#db.exec(`PRAGMA page_size=${pageBytes}; PRAGMA journal_mode=WAL`))
    }
    wait(() =>
      this.#db.exec(
        `PRAGMA cache_size=-${cacheKib}; PRAGMA temp_store=MEMORY; PRAGMA wal_autocheckpoint=0; PRAGMA mmap_size=0;` +
          `PRAGMA journal_size_limit=${walKeptBytes}; PRAGMA cell_size_check=ON; PRAGMA trusted_schema=OFF`,
      ),
    )
    this.setDurability("synced")
    if (format < storeFormat) {
      wait(() => this.#upgrade(schemas))
      // From here on the tables do not hang on the write-ahead log alone.
      this.checkpoint()
    }
    const mode = wait(() => this.#db.prepare("PRAGMA journal_mode").get()?.journal_mode)
    if (mode !== "wal") wait(() => this.#db.exec("PRAGMA journal_mode=WAL"))
    const id = wait(() => this.#db.prepare("SELECT value FROM store_value WHERE name = 'storeId'").get()?.value)
    this.directory.mark(String(id), storeFormat)
    wait(() => this.#checkCatalog())
  }

  /** Damage to what says what exists would look like a store without it, so the few pages of that are checked as a whole. */
  #checkCatalog(): void {
    for (const table of catalogTables) {
      const [found] = this.#db.prepare(`PRAGMA integrity_check(${table})`).all()
      if (found?.integrity_check === "ok") continue
      throw new CorruptionError(
        `the catalog of the store at ${JSON.stringify(this.directory.path)} is damaged: ${found?.integrity_check}`,
      )
    }
  }

  /** The store's format; 0 for a database that is empty. @throws CorruptionError, StorageError when it is not ours or too new */
  #format(): number {
    // One statement, so one snapshot: another opener may be creating the store just now.
    const row = this.#db
      .prepare(
        `SELECT application_id AS application, user_version AS format, (SELECT count(*) FROM sqlite_schema) AS tables
         FROM pragma_application_id, pragma_user_version`,
      )
      .get()
    const format = Number(row?.format)
    if (row?.application === 0 && format === 0 && row.tables === 0) return 0
    const name = JSON.stringify(this.directory.database)
    if (row?.application !== applicationId)
      throw new CorruptionError(
        `${name} is an SQLite database of another program (application id ${row?.application}), not a store`,
      )
    if (format > storeFormat)
      throw new StorageError(
        `the store ${name} has format ${format}, and this version of Millrace reads formats up to ${storeFormat}: use a newer version`,
      )
    return format
  }

  /** Adds what the store lacks of this program's format, all of it in one commit: a crash leaves the old format or the new one. */
  #upgrade(schemas: readonly string[]): void {
    this.#db.exec("BEGIN IMMEDIATE")
    try {
      const format = this.#format()
      // The marker is written after the creation was committed: with it, an empty database has lost what was in it.
      if (format === 0 && this.directory.marked) throw lostDatabase(this.directory)
      for (const schema of schemas.slice(format)) this.#db.exec(schema)
      if (format === 0) this.#db.exec("INSERT INTO store_value VALUES ('storeId', lower(hex(randomblob(16))))")
      if (format < storeFormat)
        this.#db.exec(`PRAGMA application_id=${applicationId}; PRAGMA user_version=${storeFormat}`)
      this.#db.exec("COMMIT")
    } catch (error) {
      this.#end("ROLLBACK")
      throw error
    }
  }
}

function lostDatabase({ path }: StoreDirectory): CorruptionError {
  return new CorruptionError(
    `the store at ${JSON.stringify(path)} has lost its database: millrace.db is missing or empty, though a store was made here`,
  )
}
