/** What a Confluent registry is told and answers, in its own JSON. */
import { InvalidError, MillraceError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { SchemaText } from "./canonical.ts"
import type {
  Compatibility,
  Incompatibility,
  RegisteredSchema,
  SchemaReference,
  SchemaType,
  SchemaVersion,
} from "./schema.ts"
import { largestId } from "./state-records.ts"

/** A schema as a registry is told. The type is left out for Avro, as registries before 5.5 know no other. */
export interface ForeignSchema {
  readonly schema: string
  readonly schemaType?: string
  readonly references?: readonly SchemaReference[]
}

const typeNames: Readonly<Record<SchemaType, string>> = { avro: "AVRO", "json-schema": "JSON", protobuf: "PROTOBUF" }
const compatibilityNames: Readonly<Record<Compatibility, string>> = {
  none: "NONE",
  backward: "BACKWARD",
  backwardTransitive: "BACKWARD_TRANSITIVE",
  forward: "FORWARD",
  forwardTransitive: "FORWARD_TRANSITIVE",
  full: "FULL",
  fullTransitive: "FULL_TRANSITIVE",
}

/** The body of a request that gives a schema. */
export function foreignSchema({ type, schema, references }: SchemaText): ForeignSchema {
  return {
    schema,
    ...(type === "avro" ? {} : { schemaType: typeNames[type] }),
    ...(references.length === 0 ? {} : { references }),
  }
}

/** @throws a `protocol` error for an answer that has no schema */
export function registeredSchema(id: number, answer: unknown): RegisteredSchema {
  const { schema, schemaType = "AVRO", references } = Object(answer) as Readonly<Record<string, unknown>>
  if (typeof schema !== "string") throw foreign(`schema ${id} without its text`)
  const type = Object.entries(typeNames).find(([, name]) => name === schemaType)?.[0] as SchemaType | undefined
  if (type === undefined) {
    throw new InvalidError(`schema id ${id} is of the type ${shown(schemaType)}, which Millrace does not know`, {
      context: { schemaId: id },
    })
  }
  return { id, type, schema, references: Array.isArray(references) ? references.map(reference) : [] }
}

/** @throws a `protocol` error for an answer that is no version */
export function schemaVersion(subject: string, answer: unknown): SchemaVersion {
  const { id, version } = Object(answer) as Readonly<Record<string, unknown>>
  if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id > largestId)
    throw foreign("a version without an id")
  if (typeof version !== "number" || !Number.isInteger(version)) throw foreign("a version without its number")
  return { ...registeredSchema(id, answer), subject, version }
}

/** @throws a `protocol` error for an answer that names none */
export function compatibilityOf(answer: unknown): Compatibility {
  const { compatibilityLevel, compatibility } = Object(answer) as Readonly<Record<string, unknown>>
  const name = compatibilityLevel ?? compatibility
  const found = Object.entries(compatibilityNames).find(([, foreignName]) => foreignName === name)
  if (found === undefined) throw foreign(`the compatibility ${shown(name)}`)
  return found[0] as Compatibility
}

/** A compatibility in the registry's words: `BACKWARD_TRANSITIVE`. */
export function compatibilityName(compatibility: Compatibility): string {
  return compatibilityNames[compatibility]
}

/**
 * The messages of a verbose check, each as it is but for the path that most of them tell. What follows them about the old schema says
 * which version it is.
 */
export function reasonsIn(messages: readonly unknown[]): Incompatibility[] {
  const texts = messages.map((message) => (typeof message === "string" ? message : JSON.stringify(message)))
  const old = texts.map((text) => /^\{?oldSchemaVersion:\s*(\d+)/.exec(text)?.[1]).find((found) => found !== undefined)
  const version = old === undefined ? {} : { version: Number(old) }
  return texts
    .filter((text) => !/^\{?(?:oldSchemaVersion|oldSchema|validateFields|compatibility):/.test(text))
    .map((text) => ({ ...version, path: /\bpath:?\s*'([^']*)'/.exec(text)?.[1] ?? "", message: text }))
}

/** @throws InvalidError unless it is a whole number from 1 */
export function namedVersion(version: unknown): number {
  if (typeof version === "number" && Number.isInteger(version) && version >= 1) return version
  throw new InvalidError(`version ${shown(version)} is not a whole number from 1, nor "latest"`)
}

function reference(entry: unknown): SchemaReference {
  const { name, subject, version } = Object(entry) as Readonly<Record<string, unknown>>
  if (typeof name !== "string" || typeof subject !== "string" || typeof version !== "number") {
    throw foreign("a reference without name, subject or version")
  }
  return { name, subject, version }
}

function foreign(what: string): MillraceError {
  return new MillraceError("protocol", `the schema registry answers with ${what}`)
}
