/** The files of a store. */
import { closeSync, fsyncSync, mkdirSync, openSync, realpathSync, renameSync, statSync, writeFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { threadId } from "node:worker_threads"
import { InvalidError } from "@millrace/contract"
import { storageError } from "./storage-error.ts"

/** Where everything of a store lies. `path` is real: links are followed, so that two ways to one directory are one store. */
export class StoreDirectory {
  readonly path: string

  private constructor(path: string) {
    this.path = path
  }

  /**
   * Makes the directory and its parents where they are missing, durably.
   * @throws InvalidError when a file stands in the way, PermissionError, DiskFullError, StorageError
   */
  static make(path: string): StoreDirectory {
    if (path === "") throw new InvalidError('a store needs a directory: the path is empty; write "file:./data"')
    try {
      const first = mkdirSync(join(path, "segments"), { recursive: true })
      const directory = new StoreDirectory(realpathSync(path))
      if (first !== undefined) directory.#syncNames(dirname(resolve(first)))
      return directory
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code
      if (code === "EEXIST" || code === "ENOTDIR")
        throw new InvalidError(`the store's path ${JSON.stringify(path)} leads to a file, not to a directory`, {
          cause: error,
        })
      throw storageError(error, `making the store's directory ${JSON.stringify(path)}`)
    }
  }

  /** A directory that must be there. @throws StorageError when it is not, PermissionError */
  static existing(path: string): StoreDirectory {
    try {
      return new StoreDirectory(realpathSync(path))
    } catch (error) {
      throw storageError(error, `opening the store's directory ${JSON.stringify(path)}`)
    }
  }

  get database(): string {
    return join(this.path, "millrace.db")
  }

  get segments(): string {
    return join(this.path, "segments")
  }

  segment(id: bigint): string {
    return join(this.path, "segments", `${id.toString(16).padStart(16, "0")}.log`)
  }

  /** Touched after commits that somebody may wait for. */
  get wake(): string {
    return join(this.path, "wake")
  }

  /** Counts how often somebody had to wait for the write lock. */
  get waiting(): string {
    return join(this.path, "waiting")
  }

  get #marker(): string {
    return join(this.path, "millrace.store")
  }

  /** Whether a store was made here before: then a database without tables has lost them. */
  get marked(): boolean {
    return sizeOf(this.#marker) > 0
  }

  /** Whether there is nothing in the database's file, or no file. */
  get hasNoDatabase(): boolean {
    return sizeOf(this.database) === 0
  }

  /** Writes the marker when it is missing. The store must be on disk before. */
  mark(storeId: string, format: number): void {
    if (this.marked) return
    this.#syncNames(dirname(this.path))
    const draft = `${this.#marker}.${process.pid}.${threadId}`
    writeFileSync(draft, `Millrace store ${storeId}, format ${format}\n`, { flush: true })
    renameSync(draft, this.#marker)
    syncDirectory(this.path)
  }

  /** Makes the names of the store's directory and of those above it durable, up to and with the names in `top`. */
  #syncNames(top: string): void {
    const end = realpathSync(top)
    for (let path = this.path; ; path = dirname(path)) {
      syncDirectory(path)
      if (path === end || path === dirname(path)) return
    }
  }
}

/** Makes new names in a directory durable. Windows has no such call; a parent that may not be read was not made by us. */
export function syncDirectory(path: string): void {
  let fd: number | undefined
  try {
    fd = openSync(path, "r")
    fsyncSync(fd)
  } catch (error) {
    if (process.platform !== "win32" && (error as NodeJS.ErrnoException).code !== "EACCES") throw error
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

/** 0 for a file that is not there. */
function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}
