import { InvalidError, MillraceError, NotFoundError } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import { type SchemaText, schemaText } from "./canonical.ts"
import { checkCompatibility } from "./compatibility.ts"
import {
  compatibilityName,
  compatibilityOf,
  type ForeignSchema,
  foreignSchema,
  namedVersion,
  reasonsIn,
  registeredSchema,
  schemaVersion,
} from "./confluent-answers.ts"
import { IncompatibleSchemaError } from "./incompatible.ts"
import { RefusedRequest, type RegistryFailure, type RegistryHttp, type RegistryRequest } from "./registry-http.ts"
import type {
  Compatibility,
  CompatibilityReport,
  RegisteredSchema,
  SchemaCheckOptions,
  SchemaFraming,
  SchemaInit,
  SchemaRegisterOptions,
  SchemaRegistry,
  SchemaVersion,
} from "./schema.ts"
import { SchemaCache } from "./schema-cache.ts"
import { checkSchemaId, checkSubject, unknownId, unknownSubject, unknownVersion } from "./state-records.ts"

/** How many requests `list` and `versions` make at once. */
const mostAtOnce = 8

/** What a registry's error codes mean (Schema Registry API reference). */
const codes = {
  notFound: 404,
  methodNotAllowed: 405,
  subjectNotFound: 40401,
  versionNotFound: 40402,
  schemaNotFound: 40403,
  subjectWithoutCompatibility: 40408,
  incompatible: 409,
  invalidVersion: 42202,
} as const

/** A registry behind Confluent's REST interface. What is registered there is checked there. */
export class ConfluentRegistry implements SchemaRegistry {
  readonly framing: SchemaFraming = "confluent"
  readonly #http: RegistryHttp
  readonly #byId: SchemaCache<number, RegisteredSchema>
  readonly #byVersion: SchemaCache<string, SchemaVersion>

  constructor(http: RegistryHttp, cacheSize: number) {
    this.#http = http
    this.#byId = new SchemaCache(cacheSize)
    this.#byVersion = new SchemaCache(cacheSize)
  }

  async register(schema: SchemaInit): Promise<number>
  async register(subject: string, schema: SchemaInit, options?: SchemaRegisterOptions): Promise<number>
  async register(subject: string | SchemaInit, init?: SchemaInit, options?: SchemaRegisterOptions): Promise<number> {
    if (typeof subject !== "string") {
      throw new InvalidError(
        "this schema registry takes schemas only as versions of a subject: use register(subject, schema)",
      )
    }
    checkSubject(subject)
    const text = schemaText(init as SchemaInit)
    if (new OptionReader<SchemaRegisterOptions>("register", options, ["force"]).flag("force", false)) {
      throw new InvalidError(
        `this schema registry checks every new version itself: setCompatibility(${shown(subject)}, "none") before, instead of "force"`,
      )
    }
    const request = this.#post(
      `/subjects/${encodeURIComponent(subject)}/versions`,
      text,
      `registering a schema of subject ${shown(subject)}`,
    )
    try {
      return checkSchemaId((Object(await this.#http.request(request)) as { readonly id: number }).id)
    } catch (error) {
      const { code, message } = failureOf(error)
      if (code !== codes.incompatible && !(code > 40900 && code < 41000)) throw this.#refused(error, request.what)
      const incompatibilities = reasonsIn([message])
      throw new IncompatibleSchemaError(subject, undefined, { incompatibilities, cause: error })
    }
  }

  async get(id: number): Promise<RegisteredSchema> {
    checkSchemaId(id)
    return await this.#byId.get(id, async () => {
      const request: RegistryRequest = { method: "GET", path: `/schemas/ids/${id}`, what: `getting schema ${id}` }
      return registeredSchema(id, await this.#asked(request, () => unknownId(id)))
    })
  }

  async list(): Promise<RegisteredSchema[]> {
    const found = new Map<number, RegisteredSchema>()
    await each(await this.subjects(), async (subject) => {
      for (const { id, type, schema, references } of await this.versions(subject))
        found.set(id, { id, type, schema, references })
    })
    return [...found.values()].sort((a, b) => a.id - b.id)
  }

  async subjects(): Promise<string[]> {
    const subjects = await this.#asked({ method: "GET", path: "/subjects", what: "listing the subjects" })
    return Array.isArray(subjects) ? subjects.filter((name) => typeof name === "string").sort() : []
  }

  async versions(subject: string): Promise<SchemaVersion[]> {
    const path = `/subjects/${encodeURIComponent(checkSubject(subject))}/versions`
    const what = `listing the versions of subject ${shown(subject)}`
    const numbers = await this.#asked({ method: "GET", path, what }, () => unknownSubject(subject))
    const found: SchemaVersion[] = []
    await each(Array.isArray(numbers) ? numbers.filter((number) => Number.isInteger(number)) : [], async (number) => {
      found.push(await this.version(subject, number))
    })
    return found.sort((a, b) => a.version - b.version)
  }

  async version(subject: string, version: number | "latest"): Promise<SchemaVersion> {
    checkSubject(subject)
    if (version === "latest") return await this.#version(subject, version)
    const number = namedVersion(version)
    return await this.#byVersion.get(`${number} ${subject}`, () => this.#version(subject, number))
  }

  async find(subject: string, schema: SchemaInit): Promise<SchemaVersion | undefined> {
    const path = `/subjects/${encodeURIComponent(checkSubject(subject))}`
    const request = this.#post(path, schemaText(schema), `looking for a schema of subject ${shown(subject)}`)
    try {
      return schemaVersion(subject, await this.#http.request(request))
    } catch (error) {
      const { code } = failureOf(error)
      if (code === codes.subjectNotFound || code === codes.schemaNotFound) return undefined
      throw this.#refused(error, request.what)
    }
  }

  async check(subject: string, schema: SchemaInit, options?: SchemaCheckOptions): Promise<CompatibilityReport> {
    checkSubject(subject)
    const text = schemaText(schema)
    new OptionReader<SchemaCheckOptions>("check", options, ["version"])
    const version = options?.version === undefined ? undefined : namedVersion(options.version)
    const compatibility = await this.compatibility(subject)
    const what = `checking a schema against subject ${shown(subject)}`
    const answer = await this.#compare(subject, text, { version, what })
    if (answer === undefined) return { compatible: true, compatibility, incompatibilities: [] }
    const { is_compatible: compatible, messages } = Object(answer) as {
      readonly is_compatible?: unknown
      readonly messages?: unknown
    }
    if (typeof compatible !== "boolean") throw this.#unexpected(what, "is_compatible")
    const reasons = compatible ? [] : reasonsIn(Array.isArray(messages) ? messages : [])
    return {
      compatible,
      compatibility,
      incompatibilities: reasons.map((reason) => (version === undefined ? reason : { ...reason, version })),
    }
  }

  /** The answer of a comparison; `undefined` where there is no version to compare with. */
  async #compare(
    subject: string,
    text: SchemaText,
    { version, what }: { readonly version: number | "latest" | undefined; readonly what: string },
  ): Promise<unknown> {
    const path = `/compatibility/subjects/${encodeURIComponent(subject)}/versions${version === undefined ? "" : `/${version}`}`
    try {
      return await this.#http.request(this.#post(`${path}?verbose=true`, text, what))
    } catch (error) {
      const { code } = failureOf(error)
      // Registries before 5.5 compare with one version only.
      if (version === undefined && (code === codes.notFound || code === codes.methodNotAllowed)) {
        return await this.#compare(subject, text, { version: "latest", what })
      }
      const absent = code === codes.subjectNotFound || code === codes.versionNotFound
      if (absent && typeof version !== "number") return undefined
      if (code === codes.subjectNotFound) throw unknownSubject(subject)
      if (typeof version === "number" && (absent || code === codes.invalidVersion))
        throw unknownVersion(subject, version)
      throw this.#refused(error, what)
    }
  }

  async compatibility(subject?: string): Promise<Compatibility> {
    if (subject !== undefined) {
      const path = `/config/${encodeURIComponent(checkSubject(subject))}`
      const what = `reading the compatibility of subject ${shown(subject)}`
      try {
        return compatibilityOf(await this.#http.request({ method: "GET", path, what }))
      } catch (error) {
        const { code } = failureOf(error)
        if (code !== codes.subjectNotFound && code !== codes.subjectWithoutCompatibility && code !== codes.notFound) {
          throw this.#refused(error, what)
        }
      }
    }
    return compatibilityOf(await this.#asked({ method: "GET", path: "/config", what: "reading the compatibility" }))
  }

  async setCompatibility(subject: string | undefined, compatibility: Compatibility): Promise<void> {
    const body = { compatibility: compatibilityName(checkCompatibility(compatibility)) }
    const path = subject === undefined ? "/config" : `/config/${encodeURIComponent(checkSubject(subject))}`
    await this.#asked({ method: "PUT", path, body, what: "setting the compatibility" })
  }

  async #version(subject: string, version: number | "latest"): Promise<SchemaVersion> {
    const path = `/subjects/${encodeURIComponent(subject)}/versions/${version}`
    const what = `getting version ${version} of subject ${shown(subject)}`
    const missing = (code: number): NotFoundError =>
      code === codes.subjectNotFound || version === "latest"
        ? unknownSubject(subject)
        : unknownVersion(subject, version)
    return schemaVersion(subject, await this.#asked({ method: "GET", path, what }, missing))
  }

  #post(path: string, text: SchemaText, what: string): RegistryRequest {
    const body: ForeignSchema = foreignSchema(text)
    return { method: "POST", path, body, what }
  }

  async #asked(request: RegistryRequest, missing?: (code: number) => NotFoundError): Promise<unknown> {
    try {
      return await this.#http.request(request)
    } catch (error) {
      const { code } = failureOf(error)
      const absent = code >= codes.subjectNotFound && code <= codes.schemaNotFound
      if (missing !== undefined && (absent || code === codes.notFound || code === codes.invalidVersion))
        throw missing(code)
      throw this.#refused(error, request.what)
    }
  }

  /** A refusal as an error of Millrace's; other errors as they are. */
  #refused(error: unknown, what: string): unknown {
    if (!(error instanceof RefusedRequest)) return error
    const { code, message } = error.failure
    const text = `${what}: the schema registry at ${this.#http.address} refuses it (${code}): ${message}`
    const details = { cause: error, context: { errorCode: code } }
    return code === codes.notFound || (code >= 40400 && code < 40500)
      ? new NotFoundError(text, details)
      : new InvalidError(text, details)
  }

  #unexpected(what: string, lacks: string): MillraceError {
    return new MillraceError("protocol", `${what}: the answer of ${this.#http.address} lacks ${shown(lacks)}`)
  }
}

const noFailure: RegistryFailure = { code: 0, message: "" }

function failureOf(error: unknown): RegistryFailure {
  return error instanceof RefusedRequest ? error.failure : noFailure
}

/** Works through a list, a few at once; the first failure ends it. */
async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  let next = 0
  let failed = false
  const lane = async (): Promise<void> => {
    while (next < items.length && !failed) {
      try {
        await work(items[next++] as T)
      } catch (error) {
        failed = true
        throw error
      }
    }
  }
  const lanes = await Promise.allSettled(Array.from({ length: mostAtOnce }, lane))
  for (const end of lanes) if (end.status === "rejected") throw end.reason
}
