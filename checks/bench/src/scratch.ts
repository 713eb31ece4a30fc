/** Fresh directories on a real disk, one a measurement, removed again. */
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  statfsSync,
  statSync,
} from "node:fs"
import { join } from "node:path"

/** `f_type` of file systems that live in memory: a sync costs nothing there, so nothing measured on one means anything. */
const inMemory: ReadonlyMap<number, string> = new Map([
  [0x01021994, "tmpfs"],
  [0x858458f6, "ramfs"],
])

/** Where the measurements write. */
export interface Scratch {
  /** The directory that holds the fresh ones. */
  readonly root: string
  /**
   * Calls `work` with a new empty directory and removes it afterwards, also when `work` fails. Before `work` runs, the journal of
   * the file system is flushed, so that the traces of the measurement before do not weigh on this one.
   */
  within<T>(work: (directory: string) => Promise<T>): Promise<T>
  /** Removes `root`. */
  remove(): void
}

/**
 * @param parent a directory, created when it is missing.
 * @throws Error when `parent` lies on a file system in memory.
 */
export function openScratch(parent: string): Scratch {
  mkdirSync(parent, { recursive: true })
  const memory = inMemory.get(statfsSync(parent).type)
  if (memory !== undefined) {
    throw new Error(`${parent} lies on ${memory}, where a sync is free: run the benchmarks on a disk`)
  }
  const root = mkdtempSync(join(parent, "bench-"))
  return {
    root,
    async within(work) {
      const directory = mkdtempSync(join(root, "run-"))
      syncDirectory(root)
      try {
        return await work(directory)
      } finally {
        rmSync(directory, { recursive: true, force: true })
      }
    },
    remove() {
      rmSync(root, { recursive: true, force: true })
    },
  }
}

/** Bytes of all files below a directory, by their length. */
export function directoryBytes(directory: string): number {
  let bytes = 0
  for (const entry of readdirSync(directory, { withFileTypes: true, recursive: true })) {
    if (entry.isFile()) bytes += statSync(join(entry.parentPath, entry.name)).size
  }
  return bytes
}

function syncDirectory(directory: string): void {
  const handle = openSync(directory, "r")
  try {
    fsyncSync(handle)
  } finally {
    closeSync(handle)
  }
}
