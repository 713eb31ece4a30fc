import { InvalidError, type MillraceError, type Session, type StateStore, unsupported } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { type Attempt, type AttemptSettings, attempt } from "../client/attempts.ts"
import { OptionReader, shown } from "../client/options.ts"
import { type SchemaText, schemaHash, schemaText } from "./canonical.ts"
import { checkCompatibility, defaultCompatibility, demandedVersions, incompatibilities } from "./compatibility.ts"
import { formatOf } from "./formats.ts"
import { IncompatibleSchemaError } from "./incompatible.ts"
import { raced } from "./raced.ts"
import { resolveSchema } from "./resolution.ts"
import type {
  Compatibility,
  CompatibilityReport,
  Incompatibility,
  RegisteredSchema,
  SchemaCheckOptions,
  SchemaFraming,
  SchemaInit,
  SchemaRegisterOptions,
  SchemaRegistry,
  SchemaVersion,
} from "./schema.ts"
import type { ResolvedSchema } from "./schema-format.ts"
import { SchemaIds } from "./schema-ids.ts"
import {
  checkedRow,
  checkSchemaId,
  checkSubject,
  compatibilityKey,
  decodeRow,
  encodeRow,
  idOfKey,
  idPrefix,
  type SchemaRow,
  type SubjectRow,
  subjectKey,
  subjectPrefix,
  unknownSubject,
  unknownVersion,
} from "./state-records.ts"

/** The way out for a backend that keeps no state. */
const otherRegistry =
  'Open the client with a registry that keeps them: connect(url, { schemas: confluentRegistry("http://registry:8081") })'

/** What the registry gets from its client. */
export interface RegistryContext {
  readonly session: Pick<Session, "state" | "manifest">
  readonly clock: Clock
  readonly publish: AttemptSettings
  /** @throws ClosedError once the client is closed */
  assertOpen?(): void
}

/** Schemas in the small state of the client's backend (`client.schemas`). Requests have the connection's publish timeout and retries. */
export class StateRegistry implements SchemaRegistry {
  readonly framing: SchemaFraming = "header"
  readonly #context: RegistryContext
  readonly #ids: SchemaIds
  /** Registrations of this process come one after the other, so that they only race with those of others. */
  #turn: Promise<unknown> = Promise.resolve()

  constructor(context: RegistryContext) {
    this.#context = context
    this.#ids = new SchemaIds(context.session.state)
  }

  async register(schema: SchemaInit): Promise<number>
  async register(subject: string, schema: SchemaInit, options?: SchemaRegisterOptions): Promise<number>
  async register(first: string | SchemaInit, init?: SchemaInit, options?: SchemaRegisterOptions): Promise<number> {
    if (typeof first !== "string") {
      const text = schemaText(first)
      return await this.#change("registering a schema", async () => {
        const hash = schemaHash(text)
        // What is registered was checked.
        const known = await this.#ids.complete(hash)
        if (known !== undefined) return known
        await this.#checked(text)
        return await this.#ids.ensure(text, hash)
      })
    }
    const subject = checkSubject(first)
    const text = schemaText(init as SchemaInit)
    const read = new OptionReader<SchemaRegisterOptions>("register", options, ["force"])
    const force = read.flag("force", false)
    return await this.#change(`registering a schema of subject ${shown(subject)}`, () =>
      this.#registerVersion(subject, text, force),
    )
  }

  async get(id: number): Promise<RegisteredSchema> {
    checkSchemaId(id)
    return await this.#attempt(`getting schema ${id}`, () => this.#ids.get(id))
  }

  async list(): Promise<RegisteredSchema[]> {
    return await this.#attempt("listing the schemas", async () => {
      const entries = await this.#state.list(idPrefix)
      return entries
        .map((entry) => ({ id: idOfKey(entry.key), ...decodeRow<SchemaRow>(entry) }))
        .sort((a, b) => a.id - b.id)
    })
  }

  async subjects(): Promise<string[]> {
    return await this.#attempt("listing the subjects", async () => {
      const rows = (await this.#state.list(subjectPrefix)).map((entry) => decodeRow<SubjectRow>(entry))
      return rows
        .filter(({ ids }) => ids.length > 0)
        .map(({ subject }) => subject)
        .sort()
    })
  }

  async versions(subject: string): Promise<SchemaVersion[]> {
    checkSubject(subject)
    return await this.#attempt(`listing the versions of subject ${shown(subject)}`, async () => {
      const ids = await this.#versionIds(subject)
      const versions: SchemaVersion[] = []
      for (const [index, id] of ids.entries()) {
        versions.push({ ...(await this.#ids.get(id)), subject, version: index + 1 })
      }
      return versions
    })
  }

  async version(subject: string, version: number | "latest"): Promise<SchemaVersion> {
    checkSubject(subject)
    if (version !== "latest") checkVersion(version)
    return await this.#attempt(`getting version ${version} of subject ${shown(subject)}`, async () => {
      const ids = await this.#versionIds(subject)
      const number = version === "latest" ? ids.length : version
      const id = ids[number - 1]
      if (id === undefined) throw unknownVersion(subject, number)
      return { ...(await this.#ids.get(id)), subject, version: number }
    })
  }

  async find(subject: string, schema: SchemaInit): Promise<SchemaVersion | undefined> {
    checkSubject(subject)
    const text = schemaText(schema)
    return await this.#attempt(`looking for a schema of subject ${shown(subject)}`, async () => {
      const id = await this.#ids.find(schemaHash(text))
      const { ids } = await this.#subject(subject)
      const index = id === undefined ? -1 : ids.indexOf(id)
      if (id === undefined || index === -1) return undefined
      return { ...(await this.#ids.get(id)), subject, version: index + 1 }
    })
  }

  async check(subject: string, schema: SchemaInit, options?: SchemaCheckOptions): Promise<CompatibilityReport> {
    checkSubject(subject)
    const text = schemaText(schema)
    new OptionReader<SchemaCheckOptions>("check", options, ["version"])
    const version = options?.version
    if (version !== undefined) checkVersion(version)
    return await this.#attempt(`checking a schema against subject ${shown(subject)}`, async () => {
      const resolved = await this.#checked(text)
      const row = await this.#subject(subject)
      return await this.#report(row, resolved, version)
    })
  }

  async compatibility(subject?: string): Promise<Compatibility> {
    if (subject !== undefined) checkSubject(subject)
    return await this.#attempt("reading the compatibility", async () => {
      const own = subject === undefined ? undefined : (await this.#subject(subject)).compatibility
      return own ?? (await this.#defaultCompatibility())
    })
  }

  async setCompatibility(subject: string | undefined, compatibility: Compatibility): Promise<void> {
    if (subject !== undefined) checkSubject(subject)
    checkCompatibility(compatibility)
    await this.#change("setting the compatibility", async () => {
      if (subject === undefined) {
        await this.#state.put(compatibilityKey, encodeRow({ compatibility }), {})
        return
      }
      await raced(`the compatibility of subject ${shown(subject)}`, async () => {
        const { revision, ...row } = await this.#subject(subject)
        await this.#state.put(subjectKey(subject), encodeRow({ ...row, compatibility }), { ifRevision: revision })
      })
    })
  }

  get #state(): StateStore {
    return this.#context.session.state
  }

  async #registerVersion(subject: string, text: SchemaText, force: boolean): Promise<number> {
    const hash = schemaHash(text)
    let checked: ResolvedSchema | undefined
    return await raced(`subject ${shown(subject)}`, async () => {
      const { revision, ...row } = await this.#subject(subject)
      const known = await this.#ids.find(hash)
      if (known !== undefined && row.ids.includes(known)) return known
      checked ??= await this.#checked(text)
      if (!force) {
        const { compatible, compatibility, incompatibilities } = await this.#report(row, checked, undefined)
        if (!compatible) throw new IncompatibleSchemaError(subject, compatibility, { incompatibilities })
      }
      const id = await this.#ids.ensure(text, hash)
      const value = checkedRow({ ...row, ids: [...row.ids, id] }, `the list of versions of subject ${shown(subject)}`)
      await this.#state.put(subjectKey(subject), value, { ifRevision: revision })
      return id
    })
  }

  async #checked(text: SchemaText): Promise<ResolvedSchema> {
    const resolved = await resolveSchema(this, text)
    formatOf(text.type).check(resolved)
    return resolved
  }

  async #report(row: SubjectRow, added: ResolvedSchema, version: number | undefined): Promise<CompatibilityReport> {
    const compatibility = row.compatibility ?? (await this.#defaultCompatibility())
    if (version !== undefined && row.ids.length > 0 && version > row.ids.length)
      throw unknownVersion(row.subject, version)
    if (version !== undefined && row.ids.length === 0) throw unknownSubject(row.subject)
    const asked = version === undefined ? demandedVersions(compatibility, row.ids.length) : [version]
    const found: Incompatibility[] = []
    for (const number of asked) {
      const existing = {
        ...(await this.#ids.get(row.ids[number - 1] as number)),
        subject: row.subject,
        version: number,
      }
      const resolved = await resolveSchema(this, existing)
      found.push(...incompatibilities(compatibility, added, { version: existing, resolved }))
    }
    return { compatible: found.length === 0, compatibility, incompatibilities: found }
  }

  async #versionIds(subject: string): Promise<readonly number[]> {
    const { ids } = await this.#subject(subject)
    if (ids.length === 0) throw unknownSubject(subject)
    return ids
  }

  async #subject(subject: string): Promise<SubjectRow & { readonly revision: bigint }> {
    const entry = await this.#state.get(subjectKey(subject))
    if (entry === undefined) return { subject, ids: [], revision: 0n }
    return { ...decodeRow<SubjectRow>(entry), revision: entry.revision }
  }

  async #defaultCompatibility(): Promise<Compatibility> {
    const entry = await this.#state.get(compatibilityKey)
    if (entry === undefined) return defaultCompatibility
    return decodeRow<{ readonly compatibility: Compatibility }>(entry).compatibility
  }

  async #change<T>(what: string, request: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(() => this.#attempt(what, request, isOfTheSchema))
    this.#turn = done.catch(() => {})
    return await done
  }

  /** Each operation can be repeated: what it wrote before is found again. */
  async #attempt<T>(what: string, request: () => Promise<T>, isCertain?: Attempt<T>["isCertain"]): Promise<T> {
    const { session, clock, publish } = this.#context
    this.#context.assertOpen?.()
    const { backend, state } = session.manifest
    if (!state.supported) {
      throw unsupported(backend, "small state to keep schemas in", { ...state, instead: otherRegistry })
    }
    return await attempt(clock, publish, isCertain === undefined ? { what, request } : { what, request, isCertain })
  }
}

/** Said by who has looked at what is registered: an attempt before that had registered it would have been found. */
function isOfTheSchema({ kind }: MillraceError): boolean {
  return kind === "invalid" || kind === "not-found" || kind === "record-too-large"
}

function checkVersion(version: unknown): void {
  if (typeof version === "number" && Number.isInteger(version) && version >= 1) return
  throw new InvalidError(`version ${shown(version)} is not a whole number from 1, nor "latest"`)
}
