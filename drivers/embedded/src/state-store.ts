/** The contract's small state over a channel to the engine. */
import {
  InvalidError,
  RecordTooLargeError,
  type StateEntry,
  type StateStore,
  stateKeyBytes,
  stateValueBytes,
} from "@millrace/contract"
import type { Channel } from "./channel.ts"
import type { DeleteState, PutState, StateChange } from "./engine/state.ts"
import { StateWatch } from "./state-watch.ts"

/** The small state of a session. */
export class EmbeddedState implements StateStore {
  readonly #channel: Channel
  readonly #watches = new Set<StateWatch>()
  #closed = false
  #lastWatch = 0

  constructor(channel: Channel) {
    this.#channel = channel
  }

  async get(key: string): Promise<StateEntry | undefined> {
    checkKey(key)
    return this.#channel.call("state.get", key)
  }

  async put(
    key: string,
    value: Uint8Array,
    { ifRevision, ttlMs }: { readonly ifRevision?: bigint; readonly ttlMs?: number },
  ): Promise<StateEntry> {
    checkKey(key)
    if (value.length > stateValueBytes)
      throw new RecordTooLargeError(
        `the value of ${JSON.stringify(key)} has ${value.length} bytes, and ${stateValueBytes} are allowed`,
        { context: { key, bytes: value.length, limit: stateValueBytes } },
      )
    // A view would take all of its buffer along.
    const args: PutState = { key, value: value.slice(), ifRevision, ttlMs }
    return this.#channel.call("state.put", args)
  }

  async delete(key: string, { ifRevision }: { readonly ifRevision?: bigint }): Promise<void> {
    checkKey(key)
    const args: DeleteState = { key, ifRevision }
    await this.#channel.call("state.delete", args)
  }

  async list(prefix: string): Promise<StateEntry[]> {
    checkText(prefix)
    return this.#channel.call("state.list", prefix)
  }

  watch(prefix: string): AsyncIterable<StateChange> {
    checkText(prefix)
    return { [Symbol.asyncIterator]: () => this.#newWatch(prefix) }
  }

  /** Ends all watches. */
  close(): void {
    this.#closed = true
    for (const watch of this.#watches) watch.end()
  }

  #newWatch(prefix: string): StateWatch {
    const watch = new StateWatch({
      channel: this.#channel,
      watch: ++this.#lastWatch,
      prefix,
      ended: (ended) => this.#watches.delete(ended),
    })
    this.#watches.add(watch)
    if (this.#closed) watch.end()
    return watch
  }
}

function checkKey(key: string): void {
  checkText(key)
  const bytes = Buffer.byteLength(key)
  if (bytes >= 1 && bytes <= stateKeyBytes) return
  throw new InvalidError(`the key ${JSON.stringify(key)} has ${bytes} bytes, and 1 to ${stateKeyBytes} are allowed`, {
    context: { key, bytes, limit: stateKeyBytes },
  })
}

/** Halves of surrogate pairs are not UTF-8: two keys with different ones would be the same. */
function checkText(key: string): void {
  if (key.isWellFormed()) return
  throw new InvalidError(`the key ${JSON.stringify(key)} has half of a surrogate pair, which no UTF-8 text has`)
}
