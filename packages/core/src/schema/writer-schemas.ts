/** The schemas that records were written by, as far as readers have met them. */
import { CancelledError, InvalidError, NotFoundError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { shown } from "../client/options.ts"
import { resolveSchema } from "./resolution.ts"
import type { SchemaRegistry, SchemaType } from "./schema.ts"
import type { FormatCodec, FormatReader } from "./schema-format.ts"

/** How many schemas are kept; those of the records at hand are kept in any case. */
const mostKept = 1000

/** How long a schema that was not there counts as missing, in ms. */
const missingMs = 5000

/** How many schemas are asked for at once. */
const mostAtOnce = 8

/** A schema that cannot be used, with why; of one that is missing, since when. */
interface Unusable {
  readonly error: Error
  readonly missingSinceMs: number | undefined
}

type Entry = { readonly reader: FormatReader } | Unusable

/** Readers for what other schemas wrote, as values of one schema. */
export class WriterSchemas {
  readonly #registry: SchemaRegistry
  readonly #clock: Clock
  readonly #own: { readonly id: number; readonly type: SchemaType; readonly codec: FormatCodec }
  /** The one that was used last is the last. */
  readonly #entries = new Map<number, Entry>()
  readonly #asked = new Map<number, Promise<void>>()

  constructor(
    registry: SchemaRegistry,
    clock: Clock,
    own: { readonly id: number; readonly type: SchemaType; readonly codec: FormatCodec },
  ) {
    this.#registry = registry
    this.#clock = clock
    this.#own = own
  }

  /**
   * What reads the payloads of a schema.
   * @throws NotFoundError for one that the registry did not have, InvalidError for one that cannot be read as this one or was not fetched
   */
  reader(id: number): FormatReader {
    if (id === this.#own.id) return this.#own.codec
    const entry = this.#entries.get(id)
    if (entry === undefined) {
      throw new InvalidError(
        `schema id ${id} was not fetched before its record was decoded: await prepare() of the codec first`,
      )
    }
    if ("error" in entry) throw entry.error
    return entry.reader
  }

  /** Whether nothing needs to be asked for the id. */
  has(id: number): boolean {
    if (id === this.#own.id) return true
    const entry = this.#entries.get(id)
    if (entry === undefined) return false
    if (!("error" in entry) || entry.missingSinceMs === undefined) return true
    return this.#clock.monotonicMs() - entry.missingSinceMs < missingMs
  }

  /**
   * Fetches schemas. What the registry does not have counts as fetched.
   * @throws what keeps the registry from answering; CancelledError on abort, while the requests go on for others
   */
  async fetch(ids: ReadonlySet<number>, signal: AbortSignal | undefined): Promise<void> {
    await unlessAborted(this.#fetchAll([...ids]), signal)
    this.#forgetOldest(ids)
  }

  async #fetchAll(ids: readonly number[]): Promise<void> {
    let next = 0
    const lane = async (): Promise<void> => {
      for (let id = ids[next++]; id !== undefined; id = ids[next++]) await this.#ask(id)
    }
    const lanes = await Promise.allSettled(Array.from({ length: Math.min(mostAtOnce, ids.length) }, lane))
    for (const end of lanes) if (end.status === "rejected") throw end.reason
  }

  async #ask(id: number): Promise<void> {
    if (this.has(id)) return
    const asked = this.#asked.get(id) ?? this.#look(id).finally(() => this.#asked.delete(id))
    this.#asked.set(id, asked)
    await asked
  }

  async #look(id: number): Promise<void> {
    let entry: Entry
    try {
      entry = { reader: await this.#read(id) }
    } catch (error) {
      if (error instanceof NotFoundError) {
        const named = new NotFoundError(`schema id ${id}, which the record names, cannot be had: ${error.message}`, {
          cause: error,
          context: { schemaId: id },
        })
        entry = { error: named, missingSinceMs: this.#clock.monotonicMs() }
      } else if (error instanceof InvalidError) {
        entry = { error, missingSinceMs: undefined }
      } else throw error
    }
    this.#entries.delete(id)
    this.#entries.set(id, entry)
  }

  async #read(id: number): Promise<FormatReader> {
    const written = await this.#registry.get(id)
    const { type, codec } = this.#own
    if (written.type !== type) {
      throw new InvalidError(
        `schema id ${id}, which the record names, is of the type ${shown(written.type)}, not ${shown(type)}`,
      )
    }
    const resolved = await resolveSchema(this.#registry, written)
    try {
      return codec.reads(resolved)
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause)
      throw new InvalidError(
        `schema id ${id}, which the record names, cannot be read as schema ${this.#own.id}: ${why}`,
        { cause },
      )
    }
  }

  #forgetOldest(needed: ReadonlySet<number>): void {
    for (const id of needed) {
      const entry = this.#entries.get(id)
      if (entry === undefined) continue
      this.#entries.delete(id)
      this.#entries.set(id, entry)
    }
    for (const id of this.#entries.keys()) {
      if (this.#entries.size <= mostKept || needed.has(id)) return
      this.#entries.delete(id)
    }
  }
}

async function unlessAborted(work: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return await work
  const cancelled = (): CancelledError => new CancelledError("fetching schemas was given up", { cause: signal.reason })
  await new Promise<void>((resolve, reject) => {
    const abort = (): void => reject(cancelled())
    if (signal.aborted) abort()
    signal.addEventListener("abort", abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort))
  })
}
