import { CorruptionError, InvalidError, type StateStore } from "@millrace/contract"
import type { SchemaText } from "./canonical.ts"
import { first, raced } from "./raced.ts"
import type { RegisteredSchema } from "./schema.ts"
import {
  checkedRow,
  decodeRow,
  encodeRow,
  hashKey,
  idKey,
  largestId,
  nextKey,
  type SchemaRow,
  unknownId,
} from "./state-records.ts"

/** The ids of schemas in a backend's state: one for what is the same schema, whoever registers it and how often. */
export class SchemaIds {
  readonly #state: StateStore

  constructor(state: StateStore) {
    this.#state = state
  }

  /** @throws NotFoundError that names the id */
  async get(id: number): Promise<RegisteredSchema> {
    const entry = await this.#state.get(idKey(id))
    if (entry === undefined) throw unknownId(id)
    const { type, schema, references } = decodeRow<SchemaRow>(entry)
    return { id, type, schema, references }
  }

  /** The id that a schema has, or will have when whoever claimed it goes on. */
  async find(hash: string): Promise<number | undefined> {
    const entry = await this.#state.get(hashKey(hash))
    return entry === undefined ? undefined : decodeRow<{ readonly id: number }>(entry).id
  }

  /** The id that a schema has, if it can be read under it. */
  async complete(hash: string): Promise<number | undefined> {
    const id = await this.find(hash)
    return id === undefined || (await this.#state.get(idKey(id))) === undefined ? undefined : id
  }

  /**
   * The schema's id, under which it can be read from now on. Whoever writes the hash first decides the id; the schema is written by
   * anybody who finds it missing.
   */
  async ensure(text: SchemaText, hash: string): Promise<number> {
    const value = checkedRow(text, "the schema with its references")
    const id = (await this.find(hash)) ?? (await this.#claim(hash))
    if ((await this.#state.get(idKey(id))) === undefined) {
      await first(() => this.#state.put(idKey(id), value, { ifRevision: 0n }))
    }
    return id
  }

  async #claim(hash: string): Promise<number> {
    const id = await this.#next()
    if (await first(() => this.#state.put(hashKey(hash), encodeRow({ id }), { ifRevision: 0n }))) return id
    // Somebody else was first: theirs is the id, and the one claimed here is nobody's for ever.
    const winner = await this.find(hash)
    if (winner === undefined) throw new CorruptionError("the backend's state lost a value that is never deleted")
    return winner
  }

  /** An id that nobody had before. */
  async #next(): Promise<number> {
    return await raced("the next schema id", async () => {
      const entry = await this.#state.get(nextKey)
      const id = entry === undefined ? 1 : decodeRow<{ readonly next: number }>(entry).next
      if (id > largestId) throw new InvalidError(`all ${largestId} schema ids are given`)
      await this.#state.put(nextKey, encodeRow({ next: id + 1 }), { ifRevision: entry?.revision ?? 0n })
      return id
    })
  }
}
