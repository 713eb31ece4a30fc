import { closeSync, openSync, readSync, rmSync, statSync } from "node:fs"
import { CorruptionError } from "@millrace/contract"
import type { StoreDirectory } from "./store-directory.ts"

/** Files that stay open between two uses. */
const mostOpenFiles = 8

/** Where a batch lies in a segment. */
export interface SegmentPlace {
  readonly segment: bigint
  readonly position: number
}

interface OpenFile {
  readonly fd: number
  usedMs: number
}

/** The files of segments, opened when they are used and closed when they are not. */
export class SegmentFiles {
  readonly #directory: StoreDirectory
  readonly #flags: "r" | "r+"
  /** By segment; the least lately used first. */
  readonly #files = new Map<bigint, OpenFile>()

  /** @param use Whether segments are written too. */
  constructor(directory: StoreDirectory, use: "read" | "write") {
    this.#directory = directory
    this.#flags = use === "read" ? "r" : "r+"
  }

  /**
   * Reads bytes of a segment into `target`.
   * @returns false when the file is not there: then the batch was removed meanwhile, or the store is damaged.
   * @throws CorruptionError when the file is too short
   */
  read({ segment, position }: SegmentPlace, target: Uint8Array, nowMs: number): boolean {
    const fd = this.#readable(segment, nowMs)
    if (fd === undefined) return false
    let done = 0
    while (done < target.length) {
      const got = readSync(fd, target, done, target.length - done, position + done)
      if (got === 0) {
        throw new CorruptionError(
          `segment ${segment} ends at byte ${position + done}, inside of a batch at ${position} to ${position + target.length}`,
          { context: { segment, position } },
        )
      }
      done += got
    }
    return true
  }

  /** The file descriptor for writing. `fresh`: the file begins empty, whatever lay there. */
  writable(segment: bigint, fresh: boolean, nowMs: number): number {
    const known = fresh ? undefined : this.#files.get(segment)
    if (known !== undefined) return this.#used(segment, known, nowMs)
    if (fresh) this.#close(segment)
    // Where the counter of segments was rolled back by a crash, an old draft of the same name may lie there.
    const fd = openSync(this.#directory.segment(segment), fresh ? "w+" : "r+")
    return this.#used(segment, { fd, usedMs: nowMs }, nowMs)
  }

  /** The file's size; `undefined` when it is not there. */
  size(segment: bigint): number | undefined {
    return statSync(this.#directory.segment(segment), { throwIfNoEntry: false })?.size
  }

  /** Removes a file. It may be gone already. */
  remove(segment: bigint): void {
    this.#close(segment)
    rmSync(this.#directory.segment(segment), { force: true })
  }

  /** Closes files that were not used for a while, so that they do not keep the room of removed segments. */
  closeIdle(nowMs: number, idleMs: number): void {
    for (const [segment, file] of this.#files) if (nowMs - file.usedMs >= idleMs) this.#close(segment)
  }

  close(): void {
    for (const segment of [...this.#files.keys()]) this.#close(segment)
  }

  #readable(segment: bigint, nowMs: number): number | undefined {
    const known = this.#files.get(segment)
    if (known !== undefined) return this.#used(segment, known, nowMs)
    try {
      const fd = openSync(this.#directory.segment(segment), this.#flags)
      return this.#used(segment, { fd, usedMs: nowMs }, nowMs)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
      throw error
    }
  }

  #used(segment: bigint, file: OpenFile, nowMs: number): number {
    file.usedMs = nowMs
    this.#files.delete(segment)
    this.#files.set(segment, file)
    if (this.#files.size > mostOpenFiles) {
      const [oldest] = this.#files.keys()
      if (oldest !== undefined) this.#close(oldest)
    }
    return file.fd
  }

  #close(segment: bigint): void {
    const file = this.#files.get(segment)
    if (file === undefined) return
    this.#files.delete(segment)
    closeSync(file.fd)
  }
}
