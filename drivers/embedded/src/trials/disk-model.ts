/** What a disk may hold after the machine lost its power at a given moment of a trace: only what was synced is certain. */
import { dirname } from "node:path"
import type { Random } from "@millrace/runtime"
import type { TraceEvent } from "./strace-trace.ts"

/**
 * How what was written but not synced fares. `none` and `all` are the extremes; `prefix` keeps what came first; `subset` loses whole
 * writes here and there, as a disk does that reorders; `torn` loses single sectors, 512 or 4,096 bytes, of any of them.
 */
export type Fate = "none" | "all" | "prefix" | "subset" | "torn"

/** All fates, for trials that take turns. */
export const fates: readonly Fate[] = ["none", "all", "prefix", "subset", "torn"]

/** Files by path, as they are found after the crash. A path that is absent does not exist. */
export type DiskImage = ReadonlyMap<string, Uint8Array>

type FileChange = Extract<TraceEvent, { kind: "write" | "resize" }>
type NameChange =
  | { readonly kind: "link"; readonly path: string; readonly file: ModelFile | "directory" }
  | { readonly kind: "remove"; readonly path: string }
  | { readonly kind: "rename"; readonly path: string; readonly to: string; readonly file: ModelFile | "directory" }

interface Pending<C> {
  readonly change: C
  /** Which event it was. */
  readonly at: number
}

/**
 * Takes every event of a trace in order, the marks too: a sync speaks of the events before it by their number. The name of a file is certain when its directory was synced, its bytes and its size when it was. Names change
 * in order, as every file system with a journal does it; bytes in any.
 */
export class DiskModel {
  readonly #present = new Map<string, ModelFile | "directory">()
  readonly #certain = new Map<string, ModelFile | "directory">()
  #names: Pending<NameChange>[] = []
  #count = 0

  /** @param existing directories that are there before the first event, for certain. */
  constructor(existing: readonly string[]) {
    for (const path of existing) {
      this.#present.set(path, "directory")
      this.#certain.set(path, "directory")
    }
  }

  apply(event: TraceEvent): void {
    const at = this.#count
    this.#count += 1
    switch (event.kind) {
      case "create": {
        const known = this.#present.get(event.path)
        if (known === undefined) this.#name({ kind: "link", path: event.path, file: new ModelFile() }, at)
        else if (event.truncate && known !== "directory")
          known.change({ ...event, kind: "resize", size: 0, shrink: true }, at)
        return
      }
      case "mkdir":
        this.#name({ kind: "link", path: event.path, file: "directory" }, at)
        return
      case "remove":
        this.#name(event, at)
        return
      case "rename": {
        const file = this.#present.get(event.path)
        if (file !== undefined) this.#name({ ...event, file }, at)
        return
      }
      case "write":
      case "resize": {
        const file = this.#present.get(event.path)
        if (file instanceof ModelFile) file.change(event, at)
        return
      }
      case "sync": {
        const file = this.#present.get(event.path)
        if (file instanceof ModelFile) file.sync(event.since)
        else this.#syncNames(event.path, event.since)
      }
    }
  }

  /** What is found when the power goes now. */
  image(fate: Fate, random: Random): DiskImage {
    const names = new Map(this.#certain)
    const kept = fate === "none" ? 0 : fate === "all" ? this.#names.length : random.uint32() % (this.#names.length + 1)
    for (const { change } of this.#names.slice(0, kept)) rename(names, change)
    const image = new Map<string, Uint8Array>()
    for (const [path, file] of names) {
      if (file instanceof ModelFile && names.get(dirname(path)) === "directory")
        image.set(path, file.image(fate, random))
    }
    return image
  }

  #name(change: NameChange, at: number): void {
    rename(this.#present, change)
    this.#names.push({ change, at })
  }

  #syncNames(directory: string, since: number): void {
    const synced = ({ change, at }: Pending<NameChange>): boolean => dirname(change.path) === directory && at < since
    for (const pending of this.#names) if (synced(pending)) rename(this.#certain, pending.change)
    this.#names = this.#names.filter((pending) => !synced(pending))
  }
}

function rename(names: Map<string, ModelFile | "directory">, change: NameChange): void {
  if (change.kind === "link") {
    names.set(change.path, change.file)
    return
  }
  names.delete(change.path)
  if (change.kind === "rename") names.set(change.to, change.file)
}

class ModelFile {
  readonly #certain = new GrowingBytes()
  #pending: Pending<FileChange>[] = []

  change(change: FileChange, at: number): void {
    this.#pending.push({ change, at })
  }

  sync(since: number): void {
    for (const { change, at } of this.#pending) if (at < since) this.#certain.change(change)
    this.#pending = this.#pending.filter(({ at }) => at >= since)
  }

  image(fate: Fate, random: Random): Uint8Array {
    const bytes = this.#certain.copy()
    const sector = random.uint32() % 2 === 0 ? 512 : 4096
    const kept = fate === "prefix" ? random.uint32() % (this.#pending.length + 1) : this.#pending.length
    for (const { change } of fate === "none" ? [] : this.#pending.slice(0, kept)) {
      if (fate === "torn" && change.kind === "write") {
        for (const piece of sectors(change, sector)) if (random.uint32() % 2 === 0) bytes.change(piece)
      } else if (fate === "all" || fate === "prefix" || random.uint32() % 2 === 0) bytes.change(change)
    }
    return bytes.take()
  }
}

type Write = Extract<TraceEvent, { kind: "write" }>

function sectors(write: Write, size: number): Write[] {
  const pieces: Write[] = []
  for (let at = 0; at < write.data.length; ) {
    const end = Math.min(write.data.length, at + size - ((write.offset + at) % size))
    pieces.push({ ...write, offset: write.offset + at, data: write.data.subarray(at, end) })
    at = end
  }
  return pieces
}

/** Bytes that grow by doubling; what was never written between others is zero. */
class GrowingBytes {
  #bytes: Uint8Array
  #size: number

  constructor(bytes: Uint8Array = new Uint8Array(0), size: number = 0) {
    this.#bytes = bytes
    this.#size = size
  }

  copy(): GrowingBytes {
    return new GrowingBytes(this.#bytes.slice(), this.#size)
  }

  take(): Uint8Array {
    return this.#bytes.subarray(0, this.#size)
  }

  change(change: FileChange): void {
    const size = change.kind === "write" ? change.offset + change.data.length : change.size
    if (size > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(size, this.#bytes.length * 2))
      larger.set(this.take())
      this.#bytes = larger
    }
    if (change.kind === "write") this.#bytes.set(change.data, change.offset)
    else if (change.shrink && size < this.#size) this.#bytes.fill(0, size, this.#size)
    this.#size = change.kind === "resize" && change.shrink ? size : Math.max(size, this.#size)
  }
}
