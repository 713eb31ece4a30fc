import { FencedError, type StateEntry, type StateStore } from "@millrace/contract"

/** A state store in memory, as the contract describes it, that several registries share and that can fail. */
export class MemoryState implements StateStore {
  readonly entries: Map<string, StateEntry> = new Map()
  /** Asked before each put, with how many came before it: `before` fails without storing, `after` stores and then fails. */
  fault: ((puts: number) => "before" | "after" | undefined) | undefined
  /** Awaited before each request, so that others can come in between. */
  pause: (() => Promise<void>) | undefined
  puts = 0
  gets = 0
  #revision = 0n

  async get(key: string): Promise<StateEntry | undefined> {
    await this.pause?.()
    this.gets++
    return this.entries.get(key)
  }

  async put(key: string, value: Uint8Array, options: { readonly ifRevision?: bigint }): Promise<StateEntry> {
    await this.pause?.()
    const fault = this.fault?.(this.puts++)
    if (fault === "before") throw new Error("the process died before it wrote")
    const present = this.entries.get(key)
    if (options.ifRevision !== undefined && options.ifRevision !== (present?.revision ?? 0n)) {
      throw new FencedError(`the revision of ${key} is another`, { context: { revision: present?.revision ?? 0n } })
    }
    const entry = { key, value: value.slice(), revision: ++this.#revision }
    this.entries.set(key, entry)
    if (fault === "after") throw new Error("the process died after it wrote")
    return entry
  }

  async delete(): Promise<void> {
    throw new Error("nothing of schemas is ever deleted")
  }

  async list(prefix: string): Promise<StateEntry[]> {
    await this.pause?.()
    return [...this.entries.values()]
      .filter(({ key }) => key.startsWith(prefix))
      .sort((a, b) => (a.key < b.key ? -1 : 1))
  }

  watch(): never {
    throw new Error("schemas are not watched")
  }
}
